/**
 * Notifications, from the request that sends one to its end: acceptance, the planning of recipients, control by an
 * operator, progress, completion and dead letters. Delivery does the sending. The order
 * of locks is the same everywhere: a range that is not parked, its notification, its parked ranges, then its chunks.
 */
import type { Clock } from "../../platform/base/clock.ts";
import { isOfKind } from "../../platform/base/errors.ts";
import { confirmFound } from "../../platform/database/confirm.ts";
import type { Confirm, Database } from "../../platform/database/database.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import { PushErrorKinds } from "../errors.ts";
import type { PushWakeUps } from "../queue/work.ts";
import { createAccept, createAcceptPush } from "./accept-notification.ts";
import type { CountAccepted } from "./acceptance-metrics.ts";
import { createControl } from "./control-notification.ts";
import { createDeadLetters } from "./dead-letters.ts";
import { createProgress, listFailures } from "./progress.ts";
import { createTestRuns } from "./test-run.ts";

export type Notifications = ReturnType<typeof createNotifications>;

interface Dependencies {
  readonly db: Database;
  readonly wakeUps: PushWakeUps;
  /** Has the chunks of a notification follow it in the background (follower.ts). */
  readonly follow: (notificationId: string) => void;
  readonly clock: Clock;
  /** Seconds from acceptance to expiry. */
  readonly ttlSeconds: number;
  /** The recipients of test runs; if there are none, no test run starts. */
  readonly testUserIds: readonly string[];
  readonly logger: Logger;
  readonly accepted?: CountAccepted | undefined;
}

export function createNotifications(dependencies: Dependencies) {
  const progress = createProgress(dependencies.db);
  const control = createControl(dependencies);
  const controlled = (act: (id: string) => Promise<void>) => async (id: string) => {
    await act(id);
    return progress.get(id);
  };
  return {
    /** Accepts what `/push` sends. @throws `idempotency_key_reused` */
    accept: createAcceptPush(createAccept(dependencies)),
    ...progress,
    /** Lists the reasons why its messages failed, the most frequent first. @throws `notification_not_found` */
    failures: (id: string) => listFailures(dependencies.db, id),
    /** Can be repeated. @throws `notification_not_found`, `notification_finished` */
    pause: controlled(control.pause),
    /** Can be repeated. @throws `notification_not_found`, `notification_finished` */
    resume: controlled(control.resume),
    /** Can be repeated. @throws `notification_not_found`, `notification_finished` */
    cancel: controlled(control.cancel),
    /** Cancels it unless it has ended, and removes it from all histories. @throws `notification_not_found` */
    recall: controlled(control.recall),
    ...createDeadLetters(dependencies),
    /** Starts a test run, unless one is being sent or began less than a minute ago. */
    startTestRun: createTestRuns(dependencies),
  };
}

/** The errors of a request whose earlier try was done. */
const doneBefore = [PushErrorKinds.notificationFinished, PushErrorKinds.deadLetterNotFound];

export function confirmedNotifications(notifications: Notifications, confirm: Confirm): Notifications {
  const change = <T>(act: () => Promise<T>) =>
    confirmFound(
      confirm,
      act,
      (outcome) => outcome.status === "rejected" && isOfKind(outcome.reason, doneBefore),
    );
  return {
    ...notifications,
    pause: (id) => change(() => notifications.pause(id)),
    resume: (id) => change(() => notifications.resume(id)),
    cancel: (id) => change(() => notifications.cancel(id)),
    replay: (chunkId) => change(() => notifications.replay(chunkId)),
  };
}
