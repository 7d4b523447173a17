/** The idempotency keys of sends: a request that is repeated with its key sends nothing. They are kept for 24 hours. */
import { createHash } from "node:crypto";
import { eq, type SQL, sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/readers.ts";
import { idempotencyKeys } from "../schema.ts";

/** Milliseconds for which a key is kept. */
const keyMs = 24 * 60 * 60 * 1000;

/** A key, and the client that has chosen it: two clients may use one key. */
export interface ClientKey {
  readonly clientId: string;
  readonly idempotencyKey: string;
}

/** A key with the request that it is sent with. */
interface RequestKey {
  readonly hash: Uint8Array;
  readonly requestHash: Uint8Array;
}

const sha256 = (value: unknown): Uint8Array => createHash("sha256").update(JSON.stringify(value)).digest();

const hashOfKey = ({ clientId, idempotencyKey }: ClientKey) => sha256([clientId, idempotencyKey]);

/**
 * @param operation the operation that was called: the same key with another one is another request
 * @param request what it was called with. The order of members does not matter, nor that of lists of plain values
 */
export function requestKey(sentWith: ClientKey, operation: string, request: object): RequestKey {
  return { hash: hashOfKey(sentWith), requestHash: sha256([operation, sorted(request)]) };
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) {
    const items = value.map(sorted);
    return items.some((item) => typeof item === "object") ? items : items.sort();
  }
  if (typeof value !== "object" || value === null) return value;
  return Object.entries(value)
    .filter(([, member]) => member !== undefined)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, member]) => [name, sorted(member)]);
}

const key = names(idempotencyKeys);
const bytes = (value: Uint8Array): SQL => sql`decode(${Buffer.from(value).toString("hex")}::text, 'hex')`;

/** A statement that returns a row if the key is new or has expired. A concurrent request with the key waits for it. */
export function takeKey({ hash, requestHash }: RequestKey, notificationId: string, now: number): SQL {
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

/** What was last sent with the key, and whether by the same request. */
export async function findKey(db: Database, { hash, requestHash }: RequestKey) {
  const [first] = await db
    .select()
    .from(idempotencyKeys)
    .where(eq(idempotencyKeys.keyHash, bytes(hash)));
  return first && { ...first, isSame: Buffer.from(first.requestHash).equals(requestHash) };
}

/** A query: the id of the notification that was last sent with this key, if the key is remembered. */
export const notificationOfKey = (sentWith: ClientKey): SQL =>
  sql`select ${key.notificationId} from ${idempotencyKeys} where ${key.keyHash} = ${bytes(hashOfKey(sentWith))}`;
