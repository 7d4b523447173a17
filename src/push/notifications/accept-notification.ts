/**
 * Accepts a notification that a client sends, in one statement that makes it durable. A client that did not
 * get the response repeats the request with the same idempotency key, and nothing is sent twice.
 */
import { eq, type SQL, sql } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import { uuidv7 } from "../../platform/crypto/uuid.ts";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/names.ts";
import { idempotencyKeyReused } from "../errors.ts";
import type { PushWakeUps } from "../queue/work.ts";
import { idempotencyKeys } from "../schema.ts";
import { bytes, hashOfKey, sha256 } from "./idempotency-key.ts";
import { storeNotification } from "./store-notification.ts";

/** The request of a client. */
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
}

/** Milliseconds for which an idempotency key is kept. */
const keyMs = 24 * 60 * 60 * 1000;

interface Key {
  readonly hash: Uint8Array;
  readonly requestHash: Uint8Array;
}

export function createAccept({ db, wakeUps, clock, ttlSeconds }: Dependencies) {
  return async (
    clientId: string,
    { utcOffsets, ...content }: SendRequest,
    idempotencyKey: string | undefined,
  ): Promise<{ notificationId: string }> => {
    const key =
      idempotencyKey === undefined ? undefined : keyOf(clientId, idempotencyKey, { utcOffsets, ...content });
    for (;;) {
      const now = clock.now();
      const id = uuidv7(now);
      const times = { acceptedAt: new Date(now), expiresAt: new Date(now + ttlSeconds * 1000) };
      const notification = { id, ...content, audience: { utcOffsets }, clientId, ...times };
      if (await storeNotification(db, notification, key && takeKey(key, id, now))) {
        wakeUps.wake("ranges");
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

function keyOf(
  clientId: string,
  idempotencyKey: string,
  { title, message, image, utcOffsets }: SendRequest,
): Key {
  const offsets = utcOffsets.toSorted((a, b) => a - b);
  return {
    hash: hashOfKey({ clientId, idempotencyKey }),
    requestHash: sha256([title, message, image, offsets]),
  };
}

const row = names(idempotencyKeys);

/** A statement that returns a row if the key is new or has expired. A concurrent request with the key waits for it. */
function takeKey({ hash, requestHash }: Key, notificationId: string, now: number): SQL {
  const expiresAt = new Date(now + keyMs).toISOString();
  const excluded = names(idempotencyKeys, "excluded");
  const existing = names(idempotencyKeys, "existing");
  return sql`
    insert into ${idempotencyKeys} as existing (${row.keyHash}, ${row.requestHash}, ${row.notificationId}, ${row.expiresAt})
    values (${bytes(hash)}, ${bytes(requestHash)}, ${notificationId}::uuid, ${expiresAt}::timestamptz)
    on conflict (${row.keyHash}) do update
    set ${row.requestHash} = ${excluded.requestHash}, ${row.notificationId} = ${excluded.notificationId},
      ${row.expiresAt} = ${excluded.expiresAt}
    where ${existing.expiresAt} <= ${new Date(now).toISOString()}::timestamptz
    returning 1 as one`;
}

async function findKey(db: Database, { hash, requestHash }: Key) {
  const [first] = await db
    .select()
    .from(idempotencyKeys)
    .where(eq(idempotencyKeys.keyHash, bytes(hash)));
  return first && { ...first, isSame: Buffer.from(first.requestHash).equals(requestHash) };
}
