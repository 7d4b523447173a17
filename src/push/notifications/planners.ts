/** The workers of a process that plan. */
import type { Clock } from "../../platform/base/clock.ts";
import { isDatabaseUnavailable } from "../../platform/base/database-errors.ts";
import type { Loop } from "../../platform/base/loop.ts";
import { startWorker, type WakeUps } from "../../platform/base/worker.ts";
import type { Database } from "../../platform/database/database.ts";
import { inQueueSpan } from "../../platform/messaging/event-spans.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import type { ProviderName } from "../provider-settings.ts";
import type { Work } from "../queue/work.ts";
import { createPlanner } from "./plan-notification.ts";
import { putOffRange, type RangeClass, RangeTaker, retryAfterSeconds } from "./ranges.ts";

interface Dependencies {
  readonly db: Database;
  readonly wakeUps: WakeUps<Work>;
  readonly clock: Clock;
  /** The providers in use; devices of other providers are not planned. */
  readonly providers: readonly ProviderName[];
  readonly logger: Logger;
  /** The most devices that one step plans; 16,000 unless given. */
  readonly window?: number;
}

/**
 * Starts a worker for the first ranges of notifications, which are small, so that a notification begins while a large
 * range of another one is planned, and a worker for the others.
 */
export function startPlanners({ logger, ...dependencies }: Dependencies): readonly Loop[] {
  const { db, wakeUps } = dependencies;
  const plan = createPlanner({
    ...dependencies,
    foundNobody: (notificationId) =>
      logger.warn({ notificationId }, "A notification has reached nobody: no live device was found for it"),
  });
  const taker = new RangeTaker(db);

  async function planNext(classes: readonly RangeClass[]): Promise<boolean> {
    const taken = await taker.take(classes);
    if (!taken) return false;
    const { notificationId, after } = taken.range;
    try {
      await inQueueSpan("plan", `${notificationId}/${after}`, taken.trace, () => plan(taken.range));
    } catch (err) {
      logger.error({ err, notificationId, retryAfterSeconds }, "A notification could not be planned yet");
      // What was only in the way of others, or met an outage, is soon worth another try.
      if (!isDatabaseUnavailable(err)) await putOffRange(db, taken.range).catch(() => undefined);
    }
    return true;
  }

  // Test runs come first: they are small, and an operator waits for them.
  const classesOf: readonly (readonly RangeClass[])[] = [[-1, 0], [1]];
  return classesOf.map((classes) =>
    startWorker({
      ...{ wakeUps, kind: "ranges" },
      work: () => planNext(classes),
      onError: (err) => logger.warn({ err }, "No range could be taken; it will be tried again"),
    }),
  );
}
