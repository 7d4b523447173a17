/**
 * Planning: the recipients of a notification are found range by range, of device ids or of named users. A step plans one
 * range in a short transaction; its chunks are sent while the next ranges are planned. The guarantees:
 *
 * 1. A device is planned once, even if it changes meanwhile, a process dies, or several processes plan at once. If it
 *    changes its user it counts as another device: what was planned for the former user is not sent to it.
 * 2. A user gets one history entry for any number of devices, no later than the first message, and none after the user
 *    was deleted.
 * 3. Planning ends: devices that are registered after it began are not visited.
 * 4. Notifications take turns, range by range, so that one to few users does not wait for one to millions.
 */

import { setImmediate } from "node:timers/promises";
import { eq, sql } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import { isDatabaseUnavailable } from "../../platform/base/database-errors.ts";
import type { Loop } from "../../platform/base/loop.ts";
import { startWorker, type WakeUps } from "../../platform/base/loop.ts";
import type { Database } from "../../platform/database/database.ts";
import { inQueueSpan } from "../../platform/messaging/event-spans.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import { planLock, recipientsOf } from "../history/history-blocks.ts";
import type { ProviderName } from "../provider-settings.ts";
import type { PushWakeUps, Work } from "../queue/work.ts";
import { notifications, planRanges } from "../schema.ts";
import { completeIfDone } from "./complete-notification.ts";
import { lockNotification } from "./lock-notification.ts";
import type { Planned } from "./plan-range.ts";
import { planningOf } from "./planning-of.ts";
import { ignorePageCosts } from "./range-devices.ts";
import {
  lastDevice,
  lockRange,
  parkRange,
  putOffRange,
  type RangeClass,
  RangeTaker,
  removeRange,
  retryAfterSeconds,
  splitRange,
  type TakenRange,
} from "./ranges.ts";
import { createZones } from "./zones.ts";

/** The most devices of the first step: few, so that the first message goes out at once. */
const firstStep = 1_000;
/** The most devices of the other steps: few enough that others hardly notice that they wait for the step. */
const defaultWindow = 16_000;

interface Dependencies {
  readonly db: Database;
  readonly wakeUps: PushWakeUps;
  readonly clock: Clock;
  /** The providers in use; devices of other providers are not planned. */
  readonly providers: readonly ProviderName[];
  /** The most devices that one step plans; 16,000 unless given. */
  readonly window?: number | undefined;
  /** Called once for a notification that has ended because no live device was found for it. */
  readonly foundNobody?: (notificationId: string) => void;
}

/** The step cannot be committed: the notification is no longer planned, or a device has come to a new zone. */
class StepUndoneError extends Error {
  override readonly name = "StepUndoneError";
}

/**
 * What has become of a step. "undone": it is to be repeated. An object: its range was split, and it is planned next. "last", "for nobody": it was planned, and no other range
 * of the notification is left.
 */
type Outcome = "lost" | "undone" | { readonly splitAt: number } | "aside" | "planned" | "last" | "for nobody";

/** @returns plans the first step of a range that was taken, and leaves the rest to whoever takes that */
export function createPlanner(dependencies: Dependencies): (range: TakenRange) => Promise<void> {
  const { db, wakeUps, clock, providers, window = defaultWindow, foundNobody } = dependencies;
  const zonesOf = createZones();

  /** @param split where the range was split before this step; undefined: it was not */
  async function step(tx: Database, taken: TakenRange, split: number | undefined): Promise<Outcome> {
    const { notificationId, rangeNumber } = taken;
    const locked = await lockRange(tx, taken);
    if (!locked) return "lost";
    const { state, kind, utcOffsets, audience, lastDeviceId, history, acceptedAt } = notifications;
    const [notification] = await tx
      .select({ state, kind, utcOffsets, audience, lastDeviceId, history, acceptedAt })
      .from(notifications)
      .where(eq(notifications.id, notificationId));
    if (notification?.state !== "PLANNING") return setRangeAside(tx, taken);
    const through = locked.through ?? notification.lastDeviceId ?? (await lastDevice(tx));
    const range = { ...taken, through };
    const now = new Date(clock.now());
    const planning = await planningOf(tx, { ...range, providers, at: now }, notification, zonesOf);
    const size = rangeNumber === 0 ? Math.min(firstStep, window) : window;
    const made = await ignorePageCosts(tx, async () => {
      const end = range.through === split ? undefined : await planning.end(size);
      if (end !== undefined) return { end };
      // No user is deleted during a step. The lock must be acquired before the next statement takes its snapshot.
      await planLock.shared(tx);
      return planning.plan(size);
    });
    if ("end" in made) {
      await splitRange(tx, range, made.end);
      return { splitAt: made.end };
    }
    if (made.isOutdated) throw new StepUndoneError();
    return endStep(tx, taken, made, now);
  }

  return async (range) => {
    const { notificationId } = range;
    let outcome: Outcome;
    let splitAt: number | undefined;
    do {
      // On the embedded database a step blocks the event loop; this lets other work run in between.
      await setImmediate();
      outcome = await db
        .transaction((tx) => step(tx, range, splitAt))
        .catch((err: unknown) => {
          if (err instanceof StepUndoneError) return "undone";
          throw err;
        });
      if (typeof outcome === "object") {
        splitAt = outcome.splitAt;
        wakeUps.wake("ranges");
      }
    } while (typeof outcome === "object" || outcome === "undone");
    wakeUps.wake("chunks");
    if (outcome === "lost" || outcome === "planned") return;
    // If this fails, the follower does it.
    const isCompleted = await completeIfDone(db, notificationId, clock).catch(() => false);
    if (isCompleted && outcome === "for nobody") foundNobody?.(notificationId);
  };
}

/** Parks or removes a range whose notification is not being planned. */
async function setRangeAside(tx: Database, range: TakenRange): Promise<Outcome> {
  const notification = await lockNotification(tx, range.notificationId);
  if (notification?.state === "PLANNING") return "undone";
  if (notification?.state === "PAUSED") await parkRange(tx, range);
  else await removeRange(tx, range);
  return "aside";
}

/**
 * Adds the chunks of a step to the notification's, and removes its range; planning ends if no other range is left. The
 * notification is locked first: of two steps that end at once, the second one sees what the first has removed.
 */
async function endStep(tx: Database, range: TakenRange, made: Planned, at: Date): Promise<Outcome> {
  const { notificationId } = range;
  const notification = await lockNotification(tx, notificationId);
  if (notification?.state !== "PLANNING") throw new StepUndoneError();
  await removeRange(tx, range);
  const left = await tx.$count(planRanges, eq(planRanges.notificationId, notificationId));
  const chunks = notification.chunks + made.chunks;
  const { history } = notifications;
  const entries = recipientsOf(sql`${notificationId}::uuid`);
  const found = sql`${notifications.recipients} + ${made.users}::int`;
  const recipients = sql`case when ${history} then ${entries} else ${found} end`;
  await tx
    .update(notifications)
    .set({
      chunks,
      ...(left === 0 ? { state: "SENDING", plannedAt: at, recipients } : { recipients: found }),
    })
    .where(eq(notifications.id, notificationId));
  if (left > 0) return "planned";
  return chunks > 0 ? "last" : "for nobody";
}

interface PlannersDependencies extends Omit<Dependencies, "foundNobody"> {
  readonly wakeUps: WakeUps<Work>;
  readonly logger: Logger;
}

/**
 * Starts a worker for the first ranges of notifications, which are small, so that a notification begins while a large
 * range of another one is planned, and a worker for the others.
 */
export function startPlanners({ logger, ...dependencies }: PlannersDependencies): readonly Loop[] {
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
