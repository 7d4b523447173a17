/** What all three fakes are to whoever started them: an address, a ledger, and a stage for failures. */
import type { Ledger } from "./ledger.ts";
import type { Scenario } from "./scenario.ts";
import type { Playing } from "./stage.ts";

export type FakeProvider = "fcm" | "apns" | "webpush";

export interface RunningFake<Row extends string = string> {
  readonly provider: FakeProvider;
  /** What a sender has as its endpoint, such as `http://127.0.0.1:9301`. */
  readonly origin: string;
  readonly ledger: Ledger;
  /**
   * Plays a scenario from now on, after those that are on already: the first that concerns a request wins.
   * @throws TypeError that says what is wrong with it
   */
  play(scenario: Scenario<Row>): Playing;
  playing(): Playing[];
  /** Ends the scenarios. */
  stopPlaying(): void;
  /** Forgets scenarios and ledger; APNs also when provider tokens were renewed, Web Push which subscriptions ended. */
  clear(): void;
  close(): Promise<void>;
}
