/**
 * What callers are told of is confirmed by the standbys that commits wait for: by the commit of what they ask for, also
 * where that finds nothing left to be done. A request that is refused has no commit, and may be the retry of one that did
 * what it asks for and was answered 503: so it looks again after a commit of its own.
 */
import { isOfKind } from "../platform/base/errors.ts";
import { confirmFound } from "../platform/database/confirm.ts";
import type { Confirm } from "../platform/database/database.ts";
import { PushErrorKinds } from "./errors.ts";
import type { Notifications } from "./notifications/notifications.ts";

/** The refusals of a request whose earlier try has done what it asks for. */
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
