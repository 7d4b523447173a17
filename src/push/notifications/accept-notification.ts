/**
 * Accepts a notification in one statement that makes it durable. A request that is repeated with its key sends nothing.
 */
import { createHash } from "node:crypto";
import { eq, type SQL, sql } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import { currentSpan } from "../../platform/base/tracing.ts";
import { uuidv7 } from "../../platform/crypto/random.ts";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/readers.ts";
import { rowCount } from "../../platform/database/sql/statements.ts";
import { idempotencyKeyReused } from "../errors.ts";
import { PushEvents, recordEvent } from "../events.ts";
import type { PushWakeUps } from "../queue/work.ts";
import { idempotencyKeys, notifications, planRanges } from "../schema.ts";

interface Content {
  readonly title: string;
  readonly message: string;
  readonly image: string | null;
}

/** The request of a client. */
export interface SendRequest extends Content {
  /** Distinct offsets, in minutes. */
  readonly utcOffsets: readonly number[];
}

interface Dependencies {
  readonly db: Database;
  readonly wakeUps: PushWakeUps;
  readonly clock: Clock;
  readonly ttlSeconds: number;
}

/**
 * @returns accepts a notification: when it resolves, the notification is durable and will be sent. Repeating the same
 *   key and request within 24 hours returns the first one's id and does nothing else. Throws ServiceError
 *   `idempotency_key_reused` for another request under the same key
 */
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

interface NewNotification extends Content {
  /** A UUIDv7 whose time is `acceptedAt`. */
  readonly id: string;
  /** The users with a device at one of these offsets, in minutes, or the users with these ids. */
  readonly audience: { readonly utcOffsets: readonly number[] } | { readonly userIds: readonly string[] };
  /** The client that sends it; null in a test run. */
  readonly clientId: string | null;
  readonly acceptedAt: Date;
  readonly expiresAt: Date;
}

const row = names(notifications);
const range = names(planRanges);

/**
 * Stores the notification, its event and its first range. It is SQL text, as each send is one statement.
 * @param condition a statement; the notification is stored if the statement returns a row
 * @returns whether it was stored
 */
export async function storeNotification(
  db: Database,
  notification: NewNotification,
  condition: SQL = sql`select 1 as one`,
): Promise<boolean> {
  const { id, title, message, image, audience, clientId, acceptedAt, expiresAt } = notification;
  const isTest = "userIds" in audience;
  const offsets = isTest ? null : arrayLiteral(audience.utcOffsets);
  const userIds = isTest ? arrayLiteral(audience.userIds) : null;
  const { traceparent = null, tracestate = null } = currentSpan()?.context ?? {};
  const fields = {
    notificationId: sql`${id}::text`,
    clientId: sql`${clientId ?? ""}::text`,
    utcOffsets: sql`to_jsonb(coalesce(${offsets}::smallint[], '{}'))`,
    test: sql`${isTest}::boolean`,
  };
  const stored = await rowCount(
    db,
    sql`
      with condition as (${condition}),
      accepted as (
        insert into ${notifications} (${row.id}, ${row.title}, ${row.message}, ${row.image}, ${row.utcOffsets},
          ${row.userIds}, ${row.clientId}, ${row.state}, ${row.acceptedAt}, ${row.expiresAt},
          ${row.traceparent}, ${row.tracestate})
        select ${id}::uuid, ${title}::text, ${message}::text, ${image}::text, ${offsets}::smallint[],
          ${userIds}::text[], ${clientId}::text, 'PLANNING', ${acceptedAt.toISOString()}::timestamptz,
          ${expiresAt.toISOString()}::timestamptz, ${traceparent}::text, ${tracestate}::text
        from condition
        returning ${row.id}
      ),
      -- It has all devices.
      first_range as (
        insert into ${planRanges} (${range.notificationId}, ${range.after}, ${range.rangeNumber})
        select ${row.id}, 0, ${isTest ? -1 : 0}::int from accepted
      )
      ${recordEvent(PushEvents.notificationAccepted, fields, { at: acceptedAt, from: sql`from accepted` })}`,
  );
  return stored > 0;
}

/** Milliseconds for which an idempotency key is kept. */
const keyMs = 24 * 60 * 60 * 1000;

/** A key, and the client that has chosen it: two clients may use one key. */
export interface ClientKey {
  readonly clientId: string;
  readonly idempotencyKey: string;
}

interface Key {
  readonly hash: Uint8Array;
  readonly requestHash: Uint8Array;
}

const sha256 = (value: readonly unknown[]): Uint8Array =>
  createHash("sha256").update(JSON.stringify(value)).digest();

const hashOfKey = ({ clientId, idempotencyKey }: ClientKey) => sha256([clientId, idempotencyKey]);

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

const key = names(idempotencyKeys);
const bytes = (value: Uint8Array): SQL => sql`decode(${Buffer.from(value).toString("hex")}::text, 'hex')`;

/** A statement that returns a row if the key is new or has expired. A concurrent request with the key waits for it. */
function takeKey({ hash, requestHash }: Key, notificationId: string, now: number): SQL {
  const expiresAt = new Date(now + keyMs).toISOString();
  const excluded = names(idempotencyKeys, "excluded");
  const existing = names(idempotencyKeys, "existing");
  return sql`
    insert into ${idempotencyKeys} as existing (${key.keyHash}, ${key.requestHash}, ${key.notificationId}, ${key.expiresAt})
    values (${bytes(hash)}, ${bytes(requestHash)}, ${notificationId}::uuid, ${expiresAt}::timestamptz)
    on conflict (${key.keyHash}) do update
    set ${key.requestHash} = ${excluded.requestHash}, ${key.notificationId} = ${excluded.notificationId},
      ${key.expiresAt} = ${excluded.expiresAt}
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

/** A query: the id of the notification that was last sent with this key, if the key is remembered. */
export const notificationOfKey = (sentWith: ClientKey): SQL =>
  sql`select ${key.notificationId} from ${idempotencyKeys} where ${key.keyHash} = ${bytes(hashOfKey(sentWith))}`;
