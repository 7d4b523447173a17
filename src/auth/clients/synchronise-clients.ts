import { inArray } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import type { Database } from "../../platform/database/database.ts";
import { hashSecret, verifySecret } from "../password-hashing/argon2id.ts";
import { clients } from "../schema.ts";
import type { ClientRegistration } from "../settings.ts";
import type { Client } from "./client.ts";
import { disableAllBut, saveClient } from "./client-repository.ts";
import type { VerifiedSecrets } from "./verified-secrets.ts";

interface Dependencies {
  readonly db: Database;
  readonly clock: Clock;
  readonly verified: VerifiedSecrets;
  /** Ends the authorizations of a client; called in the transaction that disables it. */
  readonly endAuthorizations: (tx: Database, clientId: string, now: Date) => Promise<unknown>;
}

/**
 * Synchronises the table of clients with the settings, at start. A client that is no longer listed is disabled,
 * and its authorizations end, in the same transaction.
 */
export async function synchroniseClients(
  { db, clock, verified, endAuthorizations }: Dependencies,
  registrations: readonly ClientRegistration[],
): Promise<void> {
  const ids = registrations.map(({ clientId }) => clientId);
  const stored = ids.length > 0 ? await db.select().from(clients).where(inArray(clients.clientId, ids)) : [];
  const hashes = new Map(stored.map(({ clientId, secretHash }) => [clientId, secretHash]));
  const rows: Omit<Client, "disabledAt">[] = [];
  // Sequential, because each run of argon2 takes 19 MiB.
  for (const { clientSecret, clientAuthenticationMethods, ...registration } of registrations) {
    const { clientId, clientSettings } = registration;
    const secretHash = await currentHash(hashes.get(clientId), clientSecret);
    verified.add(clientId, secretHash, clientSecret);
    rows.push({
      ...registration,
      secretHash,
      authenticationMethods: [...clientAuthenticationMethods],
      grantTypes: [...registration.grantTypes],
      scopes: [...registration.scopes],
      clientSettings: { ...clientSettings, audiences: [...clientSettings.audiences] },
      registeredAt: new Date(clock.now()),
    });
  }
  await db.transaction(async (tx) => {
    for (const row of rows) await saveClient(tx, row);
    const disabled = await disableAllBut(tx, ids, new Date(clock.now()));
    for (const clientId of disabled) await endAuthorizations(tx, clientId, new Date(clock.now()));
  });
}

/** The stored hash if it is one of this secret, else a new one. Keeping it keeps other processes' caches valid. */
async function currentHash(stored: string | undefined, secret: string): Promise<string> {
  if (stored !== undefined && (await verifySecret(stored, secret))) return stored;
  return hashSecret(secret);
}
