/**
 * Whether a part that stands on a database is ready: made so at the start, however long the database takes,
 * and kept true afterwards.
 */
import type { Logger } from "pino";
import { pause, repeat } from "../base/loop.ts";
import type { ReadinessHandle } from "./lifecycle.ts";

/** Milliseconds between looks at the database, and between tries to get ready. */
const watchIntervalMs = 2_000;
const retryIntervalMs = 1_000;
/** One try in so many is told in the log. */
const retriesUntold = 30;

interface Preparation {
  readonly readiness: ReadinessHandle;
  readonly logger: Logger;
  readonly stopping: AbortSignal;
  /** Brings the schema up to date; undefined where somebody else does. */
  readonly migrate: (() => Promise<void>) | undefined;
  readonly isMigrated: () => Promise<boolean>;
  /** What is left to do once the schema is there. */
  readonly prepare: () => Promise<void>;
}

/** Tries until it succeeds: a database that starts later than this process is no reason to fail. */
export async function becomeReady(preparation: Preparation): Promise<void> {
  const { readiness, logger, stopping } = preparation;
  let before = "";
  for (let round = 0; !stopping.aborted; round += 1) {
    // What is in the way is told when it begins, and then now and again.
    const isNews = (state: string) => state !== before || round % retriesUntold === 0;
    let state = "migrations are pending";
    try {
      await preparation.migrate?.();
      if (await preparation.isMigrated()) {
        await preparation.prepare();
        readiness.ready();
        return;
      }
      logger[isNews(state) ? "error" : "debug"](`${state}: run npm run migrate as the migration user`);
    } catch (err) {
      state = "does not answer";
      logger[isNews(state) ? "warn" : "debug"](
        { err },
        "the database is not ready; trying again every second",
      );
    }
    readiness.notReady(state);
    before = state;
    await pause(retryIntervalMs, stopping);
  }
}

interface Watch {
  readonly readiness: ReadinessHandle;
  readonly stopping: AbortSignal;
  readonly answers: () => Promise<boolean>;
  /** Told after every look whether the database answered. */
  readonly looked: (answered: boolean) => void;
}

/** Keeps readiness true to whether the database answers. */
export async function keepReady({ readiness, stopping, answers, looked }: Watch): Promise<void> {
  const look = async () => {
    const answered = await answers();
    if (answered) readiness.ready();
    else readiness.notReady("does not answer");
    if (!stopping.aborted) looked(answered);
    return watchIntervalMs;
  };
  await repeat(stopping, look, watchIntervalMs);
}
