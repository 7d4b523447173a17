/**
 * What callers are told of is confirmed by the standbys that commits wait for. A request's own commit has waited for
 * them, also where it has only locked a row, as saving, sending, recalling and test runs do in any case. One that finds
 * nothing left to be done writes nothing. It may be the retry of a request that did it and was answered 503, as no
 * standby confirmed it: so it looks again after a commit of its own.
 */
import { ServiceError } from "../platform/base/errors.ts";
import { confirmFound, type Outcome } from "../platform/database/confirm.ts";
import type { Confirm } from "../platform/database/database.ts";
import type { ProviderControl } from "./delivery/provider-control.ts";
import type { Devices } from "./devices/devices.ts";
import { PushErrorKinds } from "./errors.ts";
import type { History } from "./history/history.ts";
import type { Notifications } from "./notifications/notifications.ts";

const hasRemovedNone = (outcome: Outcome<number>) => "value" in outcome && outcome.value === 0;

export function confirmedDevices(devices: Devices, confirm: Confirm): Devices {
  const removal = (remove: () => Promise<number>) => confirmFound(confirm, remove, hasRemovedNone);
  return {
    ...devices,
    remove: (userId, token) => removal(() => devices.remove(userId, token)),
    removeAll: (userId) => removal(() => devices.removeAll(userId)),
  };
}

/** A page of which all was viewed before marks nothing, and an app takes that it will stay so. */
export function confirmedHistory(history: History, confirm: Confirm): History {
  return {
    ...history,
    page: (userId, request, markViewed) =>
      confirmFound(
        confirm,
        () => history.page(userId, request, markViewed),
        (outcome) => {
          const content = "value" in outcome ? outcome.value.content : [];
          return markViewed && content.length > 0 && content.every(({ viewed }) => viewed);
        },
      ),
  };
}

/** The refusals of a request whose earlier try has done what it asks for; they are rolled back. */
const doneBefore = [PushErrorKinds.notificationFinished, PushErrorKinds.deadLetterNotFound];

const isDoneBefore = (outcome: Outcome<unknown>) =>
  "error" in outcome &&
  outcome.error instanceof ServiceError &&
  doneBefore.some((kind) => outcome.error instanceof ServiceError && outcome.error.kind === kind);

export function confirmedNotifications(notifications: Notifications, confirm: Confirm): Notifications {
  const change = <T>(act: () => Promise<T>) => confirmFound(confirm, act, isDoneBefore);
  return {
    ...notifications,
    pause: (id) => change(() => notifications.pause(id)),
    resume: (id) => change(() => notifications.resume(id)),
    cancel: (id) => change(() => notifications.cancel(id)),
    replay: (chunkId) => change(() => notifications.replay(chunkId)),
    // Rare, and harmless when it is done twice: so it is not asked whether any were left.
    replayAll: (filter) => confirmFound(confirm, () => notifications.replayAll(filter), isDone),
  };
}

/** Decisions of an operator, which are rare, and the same when they are taken twice. */
export function confirmedProviders(providers: ProviderControl, confirm: Confirm): ProviderControl {
  const decision = <T>(decide: () => Promise<T>) => confirmFound(confirm, decide, isDone);
  return {
    ...providers,
    resume: (provider, origin) => decision(() => providers.resume(provider, origin)),
    decideRemovals: (provider, choice) => decision(() => providers.decideRemovals(provider, choice)),
  };
}

const isDone = (outcome: Outcome<unknown>) => "value" in outcome;
