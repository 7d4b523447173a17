/**
 * What callers are told of is confirmed by the standbys that commits wait for. A request's own commit has waited for
 * them, also where it has only locked a row, as saving, sending, recalling and test runs do in any case. One that finds
 * nothing left to be done writes nothing. It may be the retry of a request that did it and was answered 503, as no
 * standby confirmed it: so it waits for a commit that comes after that one.
 */
import { ServiceError } from "../platform/base/errors.ts";
import type { OpenDatabase } from "../platform/database/database.ts";
import type { ProviderControl } from "./delivery/provider-control.ts";
import type { Devices } from "./devices/devices.ts";
import { PushErrorKinds } from "./errors.ts";
import type { History } from "./history/history.ts";
import type { Notifications } from "./notifications/notifications.ts";

type Confirm = OpenDatabase["confirm"];

export function confirmedDevices(devices: Devices, confirm: Confirm): Devices {
  async function removal(removing: Promise<number>): Promise<number> {
    const removed = await removing;
    if (removed === 0) await confirm();
    return removed;
  }
  return {
    ...devices,
    remove: (userId, token) => removal(devices.remove(userId, token)),
    removeAll: (userId) => removal(devices.removeAll(userId)),
  };
}

/** A page of which all was viewed before marks nothing, and an app takes that it will stay so. */
export function confirmedHistory(history: History, confirm: Confirm): History {
  return {
    ...history,
    async page(userId, request, markViewed) {
      const page = await history.page(userId, request, markViewed);
      const { content } = page;
      if (markViewed && content.length > 0 && content.every(({ viewed }) => viewed)) await confirm();
      return page;
    },
  };
}

/** The refusals of a request whose earlier try has done what it asks for; they are rolled back. */
const doneBefore = [PushErrorKinds.notificationFinished, PushErrorKinds.deadLetterNotFound];

export function confirmedNotifications(notifications: Notifications, confirm: Confirm): Notifications {
  async function refusal<T>(change: Promise<T>): Promise<T> {
    try {
      return await change;
    } catch (error) {
      if (error instanceof ServiceError && doneBefore.some((kind) => kind === error.kind)) await confirm();
      throw error;
    }
  }
  return {
    ...notifications,
    pause: (id) => refusal(notifications.pause(id)),
    resume: (id) => refusal(notifications.resume(id)),
    cancel: (id) => refusal(notifications.cancel(id)),
    replay: (chunkId) => refusal(notifications.replay(chunkId)),
    async replayAll(filter) {
      await notifications.replayAll(filter);
      // Where none is left, nothing was written. It is rare enough not to ask.
      await confirm();
    },
  };
}

/** Decisions of an operator, which are rare: what they have written is not asked. */
export function confirmedProviders(providers: ProviderControl, confirm: Confirm): ProviderControl {
  async function decision<T>(deciding: Promise<T>): Promise<T> {
    const status = await deciding;
    await confirm();
    return status;
  }
  return {
    ...providers,
    resume: (provider, origin) => decision(providers.resume(provider, origin)),
    decideRemovals: (provider, choice) => decision(providers.decideRemovals(provider, choice)),
  };
}
