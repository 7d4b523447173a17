/** Refuses a request about a notification only after a confirmed commit: it may be the retry of one that was done. */
import { isOfKind } from "../platform/base/errors.ts";
import { confirmFound } from "../platform/database/confirm.ts";
import type { Confirm } from "../platform/database/database.ts";
import { PushErrorKinds } from "./errors.ts";
import type { Notifications } from "./notifications/notifications.ts";

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
