/** Idempotency keys as the table has them: hashed together with the client, so that two clients may use one key. */
import { createHash } from "node:crypto";
import { type SQL, sql } from "drizzle-orm";
import { names } from "../../platform/database/sql/names.ts";
import { idempotencyKeys } from "../schema.ts";

const row = names(idempotencyKeys);

/** A key, and the client that has chosen it. */
export interface ClientKey {
  readonly clientId: string;
  readonly idempotencyKey: string;
}

export function hashOfKey({ clientId, idempotencyKey }: ClientKey): Uint8Array {
  return sha256([clientId, idempotencyKey]);
}

/** The SHA-256 of a value as JSON. */
export function sha256(value: readonly unknown[]): Uint8Array {
  return createHash("sha256").update(JSON.stringify(value)).digest();
}

/** An expression: the bytes as a value of the type bytea. */
export const bytes = (value: Uint8Array): SQL =>
  sql`decode(${Buffer.from(value).toString("hex")}::text, 'hex')`;

/** A statement: the id of the notification that was last sent with this key, if the key is remembered. */
export function notificationOfKey(hash: Uint8Array): SQL {
  return sql`select ${row.notificationId} from ${idempotencyKeys} where ${row.keyHash} = ${bytes(hash)}`;
}
