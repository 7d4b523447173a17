/**
 * Accepts a notification in one statement that makes it durable. A request that is repeated with its key sends nothing.
 */
import type { SQL } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import { uuidv7 } from "../../platform/crypto/random.ts";
import type { Database } from "../../platform/database/database.ts";
import { shareTransactions } from "../../platform/database/shared-transactions.ts";
import { plainContent } from "../content/content.ts";
import { idempotencyKeyReused } from "../errors.ts";
import type { ProviderName } from "../provider-settings.ts";
import type { PushWakeUps } from "../queue/work.ts";
import type { CountAccepted } from "./acceptance-metrics.ts";
import { nobody } from "./audience.ts";
import { findKey, requestKey, takeKey } from "./idempotency-keys.ts";
import { isSmall, planAtOnce } from "./plan-at-once.ts";
import type { NotificationRequest } from "./read-notification.ts";
import { type NewNotification, type NotificationKind, storeNotification } from "./store-notification.ts";

/** The request of a client at `/push`. */
export interface SendRequest {
  readonly title: string;
  readonly message: string;
  readonly image: string | null;
  /** Distinct offsets, in minutes. */
  readonly utcOffsets: readonly number[];
}

interface Dependencies {
  readonly db: Database;
  readonly wakeUps: PushWakeUps;
  readonly clock: Clock;
  readonly ttlSeconds: number;
  /** Those in use, by which small notifications are planned at once. Without them, planners plan all. */
  readonly providers?: readonly ProviderName[];
  /** Called for each notification that was stored. */
  readonly accepted?: CountAccepted | undefined;
}

/** Who sends what, and whom it is for. */
interface Acceptance {
  readonly clientId: string;
  readonly kind: NotificationKind;
  readonly request: NotificationRequest;
  readonly idempotencyKey: string | undefined;
}

/**
 * @returns accepts a notification: when it resolves, the notification is durable and will be sent. Repeating the same
 *   key and request within 24 hours returns the first one's id and does nothing else. Throws ServiceError
 *   `idempotency_key_reused` for another request under the same key
 */
export function createAccept({ db, wakeUps, clock, ttlSeconds, providers, accepted }: Dependencies) {
  const inTransaction = shareTransactions(db);

  /** @returns whether it was stored */
  async function store(notification: NewNotification, condition: SQL | undefined): Promise<boolean> {
    const { kind, audience, acceptedAt } = notification;
    if (!providers || kind !== "USERS" || !isSmall(audience)) {
      const isStored = await storeNotification(db, notification, condition);
      wakeUps.wake("ranges");
      return isStored;
    }
    const [isStored, isPlanned] = await inTransaction(async (tx) => {
      if (!(await storeNotification(tx, notification, condition))) return [false, false];
      return [true, await planAtOnce(tx, notification, providers, acceptedAt)];
    });
    wakeUps.wake(isPlanned ? "chunks" : "ranges");
    return isStored;
  }

  return async ({
    clientId,
    kind,
    request,
    idempotencyKey,
  }: Acceptance): Promise<{ notificationId: string }> => {
    // A kind that only /push has stands for that operation.
    const operation = kind === "OFFSETS" ? "sendPushNotification" : "createNotification";
    const key =
      idempotencyKey === undefined ? undefined : requestKey({ clientId, idempotencyKey }, operation, request);
    for (;;) {
      const now = clock.now();
      const id = uuidv7(now);
      const notification = newNotification({ id, now, kind, clientId, request, ttlSeconds });
      if (await store(notification, key && takeKey(key, id, now))) {
        accepted?.(kind);
        return { notificationId: id };
      }
      const first = key && (await findKey(db, key));
      // The key expired and was removed between the two statements.
      if (!first) continue;
      if (!first.isSame) throw idempotencyKeyReused();
      return { notificationId: first.notificationId };
    }
  };
}

/** @param made.ttlSeconds until it expires, unless the request says */
export function newNotification(made: {
  readonly id: string;
  readonly now: number;
  readonly kind: NotificationKind;
  readonly clientId: string | null;
  readonly request: NotificationRequest;
  readonly ttlSeconds: number;
}): NewNotification {
  const { id, now, kind, clientId, request } = made;
  const { ttlSeconds = made.ttlSeconds } = request.delivery;
  const times = { acceptedAt: new Date(now), expiresAt: new Date(now + ttlSeconds * 1000) };
  return { ...request, id, kind, clientId, ...times };
}

/** A notification with one text, sent as all are of which nothing is said. */
export function plainRequest(
  { title, message, image }: Omit<SendRequest, "utcOffsets">,
  audience: Partial<NotificationRequest["audience"]>,
): NotificationRequest {
  return {
    audience: { ...nobody, ...audience },
    content: plainContent({ title, message }, image ?? undefined),
    delivery: { priority: "high", history: true },
  };
}

/** @returns accepts what `/push` sends, as {@link createAccept} does */
export function createAcceptPush(accept: ReturnType<typeof createAccept>) {
  return (clientId: string, { utcOffsets, ...text }: SendRequest, idempotencyKey: string | undefined) =>
    accept({
      clientId,
      kind: "OFFSETS",
      request: plainRequest(text, { anyOf: [{ utcOffsets }] }),
      idempotencyKey,
    });
}
