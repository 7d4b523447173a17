/**
 * The readiness of a part that needs a database: the part is prepared at the start, however long the database
 * takes, and its readiness follows the database afterwards.
 */
import type { Logger } from "pino";
import { pause, repeat } from "../base/loop.ts";
import type { Reminders } from "../base/reminders.ts";
import type { ReadinessHandle } from "./lifecycle.ts";

/** Milliseconds between checks of the database, and between attempts to get ready. */
const checkIntervalMs = 1_000;
const retryIntervalMs = 1_000;

interface Part {
  /** Such as a service. */
  readonly service: string;
  readonly readiness: ReadinessHandle;
  readonly logger: Logger;
  /** Shared by the parts of a process, so that an obstacle for several of them is logged once. */
  readonly reminders: Reminders;
  readonly stopping: AbortSignal;
  /** Description of the database, for messages. */
  readonly database: string;
}

interface Preparation extends Part {
  /** Why the database cannot be used, and the remedy; undefined for a defect, which is logged with its stack. */
  readonly explain: (error: unknown) => string | undefined;
  /** Brings the schema up to date; undefined if this process must not migrate. */
  readonly migrate: (() => Promise<void>) | undefined;
  readonly isMigrated: () => Promise<boolean>;
  /** The preparation that needs the schema. */
  readonly prepare: () => Promise<void>;
  /** Whether an error of the preparation stays, however often it is tried; none does unless given. */
  readonly isFinal?: (error: unknown) => boolean;
}

/**
 * Prepares the part, and retries until it succeeds: the database may start later than this process. Rejects with an
 * error that stays.
 */
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
      const { service } = preparation;
      const text = "Migrations are pending: run npm run migrate as the migration user.";
      logObstacle(preparation, "error", text, `${service} migrations`, { service });
    } catch (err) {
      if (preparation.isFinal?.(err)) throw err;
      readiness.notReady("does not answer");
      const reason = preparation.explain(err);
      const { service, database } = preparation;
      // The reason is the same for every service on this database, a defect belongs to one of them.
      if (reason !== undefined) logObstacle(preparation, "warn", reason, `${reason} ${database}`);
      else
        logObstacle(preparation, "warn", "The database is not ready.", `${service} ${err}`, { service, err });
    }
    await pause(retryIntervalMs, stopping);
  }
}

function logObstacle(
  { logger, reminders, database }: Preparation,
  level: "warn" | "error",
  text: string,
  reminder: string,
  details: object = {},
): void {
  const due = reminders.isDue(reminder) ? level : "debug";
  logger[due]({ database, ...details }, `${text} Trying again every second.`);
}

interface BrokerPreparation extends Omit<Part, "database"> {
  /** Makes what the part needs of the broker. */
  readonly prepare: () => Promise<void>;
  /** Milliseconds after which the part is ready without it; 30 seconds unless given. */
  readonly graceMs?: number;
}

/**
 * Prepares what a part needs of a broker, and retries until it succeeds. A process that has just started is not ready
 * for as long as the grace, so that a wrong address is seen when it is rolled out; then it is ready all the same, as
 * events can wait, and nothing that it serves needs the broker.
 */
export async function prepareBroker(preparation: BrokerPreparation): Promise<void> {
  const { service, readiness, logger, reminders, stopping, prepare, graceMs = 30_000 } = preparation;
  const graceEnds = performance.now() + graceMs;
  const attempt = async () => {
    try {
      await prepare();
      readiness.ready();
      return true;
    } catch (err) {
      if (performance.now() < graceEnds) readiness.notReady("cannot be used");
      else readiness.ready();
      const level = reminders.isDue(`broker ${err}`) ? "warn" : "debug";
      logger[level]({ service, err }, "The broker cannot be used; events wait. Trying again every second.");
      return false;
    }
  };
  while (!stopping.aborted && !(await attempt())) await pause(retryIntervalMs, stopping);
}

interface Watch extends Part {
  readonly isReachable: () => Promise<boolean>;
  /** Called after every check. */
  readonly checked: (reachable: boolean) => void;
}

/** Checks the database at an interval and sets the readiness accordingly. */
export async function keepReady(watch: Watch): Promise<void> {
  const { readiness, logger, reminders, stopping, database, isReachable, checked } = watch;
  const check = async () => {
    const reachable = await isReachable();
    if (reachable) readiness.ready();
    else {
      readiness.notReady("does not answer");
      const level = reminders.isDue(`unreachable ${database}`) ? "warn" : "debug";
      logger[level]({ database }, "The database does not answer. Checking every second.");
    }
    if (!stopping.aborted) checked(reachable);
    return checkIntervalMs;
  };
  await repeat(stopping, check, checkIntervalMs);
}
