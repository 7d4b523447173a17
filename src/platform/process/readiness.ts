/** The readiness of parts that need a database, which it follows, or a broker, which counts at the start alone. */
import type { Logger } from "pino";
import { pause, repeat } from "../base/loop.ts";
import { isOfOutage } from "../base/outage.ts";
import type { Reminders } from "../base/reminders.ts";
import type { ReadinessHandle } from "./lifecycle.ts";

/** Milliseconds between checks of the database. */
const checkIntervalMs = 1_000;
/** Milliseconds between attempts to get ready. */
const retryIntervalMs = 1_000;

interface Part {
  readonly service: string;
  readonly readiness: ReadinessHandle;
  readonly logger: Logger;
  /** Shared by the parts of a process, so that an obstacle for several of them is logged once. */
  readonly reminders: Reminders;
  readonly stopping: AbortSignal;
  readonly database: string;
}

interface Preparation extends Part {
  /** Why the database cannot be used, and the remedy; undefined for a defect, which is logged with its stack. */
  readonly explain: (error: unknown) => string | undefined;
  /** Brings the schema up to date; undefined if this process must not migrate. */
  readonly migrate: (() => Promise<void>) | undefined;
  readonly isMigrated: () => Promise<boolean>;
  readonly prepare: () => Promise<void>;
  /** Whether an error of the preparation would remain, however often it is tried. Absent: none would. */
  readonly isFinal?: (error: unknown) => boolean;
}

/** Prepares the part, and retries until that succeeds. Rejects with an error that is final. */
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
      if (reason === undefined)
        logObstacle(preparation, "warn", "The database is not ready.", `${service} ${err}`, { service, err });
      else if (!isOfOutage(err)) logObstacle(preparation, "warn", reason, `${reason} ${database}`);
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
  /** Makes the streams and consumers that the part needs at the broker. */
  readonly prepare: () => Promise<void>;
  /** Milliseconds after which the part is ready without the broker. Absent: 30,000. */
  readonly graceMs?: number;
}

/** Prepares what a part needs of a broker, and retries; until then, or the end of the grace, the part is not ready. */
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

interface DatabaseChecks extends Pick<Part, "readiness" | "stopping"> {
  readonly isReachable: () => Promise<boolean>;
  readonly checked: (reachable: boolean) => void;
}

/** Checks the database every second, and sets the readiness accordingly, until the process stops. */
export async function followDatabase(checks: DatabaseChecks): Promise<void> {
  const { readiness, stopping, isReachable, checked } = checks;
  const check = async () => {
    const reachable = await isReachable();
    if (reachable) readiness.ready();
    else readiness.notReady("does not answer");
    if (!stopping.aborted) checked(reachable);
    return checkIntervalMs;
  };
  await repeat(stopping, check, checkIntervalMs);
}
