/**
 * Whether a part that stands on a database is ready: made so at the start, however long the database takes,
 * and kept true afterwards.
 */
import type { Logger } from "pino";
import { pause, repeat } from "../base/loop.ts";
import type { ReadinessHandle } from "./lifecycle.ts";
import type { Reminders } from "./reminders.ts";

/** Milliseconds between looks at the database, and between tries to get ready. */
const watchIntervalMs = 2_000;
const retryIntervalMs = 1_000;

interface Preparation {
  readonly readiness: ReadinessHandle;
  readonly logger: Logger;
  /** Shared by the parts of a process: what is in the way of several of them is logged once. */
  readonly reminders: Reminders;
  readonly stopping: AbortSignal;
  /** What the database is, for people. */
  readonly database: string;
  /** Why the database cannot be used, and what to do; undefined for a defect, which is logged with its stack. */
  readonly explain: (error: unknown) => string | undefined;
  /** Brings the schema up to date; undefined where somebody else does. */
  readonly migrate: (() => Promise<void>) | undefined;
  readonly isMigrated: () => Promise<boolean>;
  /** What is left to do once the schema is there. */
  readonly prepare: () => Promise<void>;
}

/** Tries until it succeeds: a database that starts later than this process is no reason to fail. */
export async function becomeReady(preparation: Preparation): Promise<void> {
  const { readiness, stopping } = preparation;
  while (!stopping.aborted) {
    try {
      await preparation.migrate?.();
      if (await preparation.isMigrated()) {
        await preparation.prepare();
        readiness.ready();
        return;
      }
      const state = "migrations are pending";
      readiness.notReady(state);
      logObstacle(preparation, "error", `${state}: run npm run migrate as the migration user.`);
    } catch (err) {
      readiness.notReady("does not answer");
      const reason = preparation.explain(err);
      if (reason === undefined) logObstacle(preparation, "warn", "The database is not ready.", { err });
      else logObstacle(preparation, "warn", reason);
    }
    await pause(retryIntervalMs, stopping);
  }
}

function logObstacle(
  { logger, reminders, database }: Preparation,
  level: "warn" | "error",
  text: string,
  details: object = {},
): void {
  const due = reminders.isDue(`${text} ${database}`) ? level : "debug";
  logger[due]({ database, ...details }, `${text} Trying again every second.`);
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
