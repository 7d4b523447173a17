/** The interface that the three fakes share: an address, a ledger, and scenarios. */
import type { Ledger } from "./ledger.ts";
import { readScenario, type Scenario } from "./scenario.ts";
import type { PlayingScenario, ScenarioPlayer } from "./scenario-player.ts";

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

/** The parts of a fake that the interface shows. */
interface Parts<Row extends string> {
  readonly provider: FakeProvider;
  readonly listener: { readonly origin: string; close(): Promise<void> };
  readonly ledger: Ledger;
  readonly player: ScenarioPlayer;
  /** The names of the provider's responses. */
  readonly rows: readonly Row[];
  /** Forgets what the fake itself remembers, besides scenarios and ledger. */
  readonly forget?: () => void;
}

export function runningFake<Row extends string>({
  provider,
  listener,
  ledger,
  player,
  rows,
  forget,
}: Parts<Row>): RunningFake<Row> {
  return {
    provider,
    origin: listener.origin,
    ledger,
    play: (scenario) => player.play(readScenario(scenario, rows)),
    playing: player.playing,
    stopPlaying: player.clear,
    clear() {
      player.clear();
      ledger.clear();
      forget?.();
    },
    close: listener.close,
  };
}
