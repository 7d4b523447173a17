/**
 * The readiness of a part that needs a database: the part is prepared at the start, however long the database
 * takes, and its readiness follows the database afterwards.
 */
import type { Logger } from "pino";
import { pause, repeat } from "../base/loop.ts";
import type { ReadinessHandle } from "./lifecycle.ts";
import type { Reminders } from "./reminders.ts";

/** Milliseconds between checks of the database, and between attempts to get ready. */
const checkIntervalMs = 2_000;
const retryIntervalMs = 1_000;

interface Preparation {
  readonly readiness: ReadinessHandle;
  readonly logger: Logger;
  /** Shared by the parts of a process, so that an obstacle for several of them is logged once. */
  readonly reminders: Reminders;
  readonly stopping: AbortSignal;
  /** Description of the database, for messages. */
  readonly database: string;
  /** Why the database cannot be used, and the remedy; undefined for a defect, which is logged with its stack. */
  readonly explain: (error: unknown) => string | undefined;
  /** Brings the schema up to date; undefined if this process must not migrate. */
  readonly migrate: (() => Promise<void>) | undefined;
  readonly isMigrated: () => Promise<boolean>;
  /** The preparation that needs the schema. */
  readonly prepare: () => Promise<void>;
}

/** Prepares the part, and retries until it succeeds: the database may start later than this process. */
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
      readiness.notReady("migrations are pending");
      logObstacle(preparation, "error", "Migrations are pending: run npm run migrate as the migration user.");
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
  readonly isReachable: () => Promise<boolean>;
  /** Called after every check. */
  readonly checked: (reachable: boolean) => void;
}

/** Checks the database at an interval and sets the readiness accordingly. */
export async function keepReady({ readiness, stopping, isReachable, checked }: Watch): Promise<void> {
  const check = async () => {
    const reachable = await isReachable();
    if (reachable) readiness.ready();
    else readiness.notReady("does not answer");
    if (!stopping.aborted) checked(reachable);
    return checkIntervalMs;
  };
  await repeat(stopping, check, checkIntervalMs);
}
