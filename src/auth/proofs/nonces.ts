/**
 * Nonces that a proof may name in place of the right time (RFC 9449 section 8): an HMAC over five minutes, under a key
 * that all processes share. Nothing is stored for one.
 */
import { createHmac, timingSafeEqual } from "node:crypto";
import type { Clock } from "../../platform/base/clock.ts";
import { randomBytes } from "../../platform/crypto/random.ts";
import type { Database } from "../../platform/database/database.ts";
import { nonceKeys } from "../schema.ts";

/** Milliseconds. A nonce is good in the period in which it was made, and in the next. */
const periodMs = 300_000;

export interface Nonces {
  /** The nonce of now. */
  current(): Promise<string>;
  isGood(nonce: string): Promise<boolean>;
}

export function createNonces(db: Database, clock: Clock): Nonces {
  let key: Promise<Uint8Array> | undefined;

  async function loadKey(): Promise<Uint8Array> {
    await db
      .insert(nonceKeys)
      .values({ onlyRow: 1, key: randomBytes(32) })
      .onConflictDoNothing();
    const [row] = await db.select().from(nonceKeys);
    if (!row) throw new Error("the key of the nonces is not there");
    return row.key;
  }

  async function nonceOf(period: number): Promise<Buffer> {
    key ??= loadKey().catch((error: unknown) => {
      key = undefined;
      throw error;
    });
    return createHmac("sha256", await key)
      .update(String(period))
      .digest()
      .subarray(0, 16);
  }

  const period = () => Math.floor(clock.now() / periodMs);
  return {
    current: async () => (await nonceOf(period())).toString("base64url"),
    async isGood(nonce) {
      const named = Buffer.from(nonce, "base64url");
      const good = await Promise.all([nonceOf(period()), nonceOf(period() - 1)]);
      return good.some((one) => named.length === one.length && timingSafeEqual(named, one));
    },
  };
}
