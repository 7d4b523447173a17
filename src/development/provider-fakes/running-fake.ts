/** The interface that the three fakes share: an address, a ledger, and scenarios. */
import type { Ledger } from "./ledger.ts";
import type { Scenario } from "./scenario.ts";
import type { PlayingScenario } from "./scenario-player.ts";

export type FakeProvider = "fcm" | "apns" | "webpush";

export interface RunningFake<Row extends string = string> {
  readonly provider: FakeProvider;
  /** The endpoint to set in a sender, such as `http://127.0.0.1:9301`. */
  readonly origin: string;
  readonly ledger: Ledger;
  /**
   * Plays a scenario from now on. If several apply to a request, the one that was started first wins.
   * @throws TypeError that says what is wrong with the scenario
   */
  play(scenario: Scenario<Row>): PlayingScenario;
  playing(): PlayingScenario[];
  /** Ends all scenarios. */
  stopPlaying(): void;
  /**
   * Ends all scenarios and empties the ledger. APNs also forgets its provider tokens, Web Push which
   * subscriptions have ended.
   */
  clear(): void;
  close(): Promise<void>;
}
