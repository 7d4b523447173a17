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
import type { Page, PageRequest } from "../pages.ts";
import type { PushWakeUps } from "../queue/work.ts";
import { type ClientKey, createAccept, type SendRequest } from "./accept-notification.ts";
import { createControl } from "./control-notification.ts";
import { createDeadLetters, type DeadLetter, type DeadLetterFilter } from "./dead-letters.ts";
import { createProgress, type FailureReason, listFailures, type NotificationProgress } from "./progress.ts";
import { createTestRuns } from "./test-run.ts";

export interface Notifications {
  /**
   * Accepts a notification: when this resolves, it is durable and will be sent. Repeating the same key and request
   * within 24 hours returns the first notification's id and does nothing else.
   * @throws ServiceError `idempotency_key_reused` for another request under the same key
   */
  accept(
    clientId: string,
    send: SendRequest,
    idempotencyKey: string | undefined,
  ): Promise<{ notificationId: string }>;
  /** Lists notifications, the newest first; with a key, only the one that was sent with it. */
  list(request: PageRequest, key?: ClientKey): Promise<Page<NotificationProgress>>;
  /** @throws ServiceError `notification_not_found` */
  get(id: string): Promise<NotificationProgress>;
  /**
   * Lists the reasons why its messages failed, the most frequent first.
   * @throws ServiceError `notification_not_found`
   */
  failures(id: string): Promise<FailureReason[]>;
  /** @throws ServiceError `notification_not_found`, `notification_finished` */
  pause(id: string): Promise<NotificationProgress>;
  /** @throws ServiceError `notification_not_found`, `notification_finished` */
  resume(id: string): Promise<NotificationProgress>;
  /** @throws ServiceError `notification_not_found`, `notification_finished` */
  cancel(id: string): Promise<NotificationProgress>;
  /**
   * Cancels it unless it has ended, and removes it from all histories.
   * @throws ServiceError `notification_not_found`
   */
  recall(id: string): Promise<NotificationProgress>;
  /** Lists dead letters, the newest first. */
  deadLetters(request: PageRequest): Promise<Page<DeadLetter>>;
  /**
   * Sends a dead letter again.
   * @throws ServiceError `dead_letter_not_found`; `notification_finished` if its notification was cancelled or
   * has expired
   */
  replay(chunkId: string): Promise<void>;
  /**
   * Has all present dead letters sent again in the background, or those that the filter names.
   * @throws ServiceError `notification_not_found`
   */
  replayAll(filter: DeadLetterFilter): Promise<void>;
  /** Starts a test run, unless one is being sent or began less than a minute ago. */
  startTestRun(): Promise<void>;
}

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
}

export function createNotifications(dependencies: Dependencies): Notifications {
  const progress = createProgress(dependencies.db);
  const control = createControl(dependencies);
  const { list: deadLetters, ...replays } = createDeadLetters(dependencies);
  const controlled = (act: (id: string) => Promise<void>) => async (id: string) => {
    await act(id);
    return progress.get(id);
  };
  return {
    accept: createAccept(dependencies),
    list: progress.list,
    get: progress.get,
    failures: (id) => listFailures(dependencies.db, id),
    pause: controlled(control.pause),
    resume: controlled(control.resume),
    cancel: controlled(control.cancel),
    recall: controlled(control.recall),
    deadLetters,
    ...replays,
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
