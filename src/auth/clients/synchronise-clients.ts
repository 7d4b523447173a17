import { inArray } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import type { Database } from "../../platform/database/database.ts";
import { hashSecret, verifySecret } from "../password-hashing/argon2id.ts";
import { clients } from "../schema.ts";
import type { ClientRegistration } from "../settings.ts";
import { disableAllBut, type ListedClient, saveClient } from "./client-repository.ts";
import type { VerifiedSecrets } from "./verified-secrets.ts";

interface Dependencies {
  readonly db: Database;
  readonly clock: Clock;
  readonly verified: VerifiedSecrets;
}

/**
 * Synchronises the table of clients with the settings, at start. A client that is no longer listed is disabled, and
 * its tokens are inactive, until it is listed again.
 */
export async function synchroniseClients(
  { db, clock, verified }: Dependencies,
  registrations: readonly ClientRegistration[],
): Promise<void> {
  const ids = registrations.map(({ clientId }) => clientId);
  const stored = ids.length > 0 ? await db.select().from(clients).where(inArray(clients.clientId, ids)) : [];
  const hashes = new Map(stored.map(({ clientId, secretHashes }) => [clientId, secretHashes]));
  const rows: ListedClient[] = [];
  // Sequential, because each run of argon2 takes 19 MiB.
  for (const { clientSecrets, clientAuthenticationMethods, ...registration } of registrations) {
    const { clientId, clientSettings } = registration;
    const secretHashes: string[] = [];
    for (const secret of clientSecrets) {
      const secretHash = await currentHash(hashes.get(clientId) ?? [], secret);
      verified.add(secretHash, secret);
      secretHashes.push(secretHash);
    }
    rows.push({
      ...registration,
      secretHashes,
      authenticationMethods: [...clientAuthenticationMethods],
      grantTypes: [...registration.grantTypes],
      scopes: [...registration.scopes],
      clientSettings: { ...clientSettings, audiences: [...clientSettings.audiences] },
      registeredAt: new Date(clock.now()),
    });
  }
  await db.transaction(async (tx) => {
    for (const row of rows) await saveClient(tx, row);
    await disableAllBut(tx, ids);
  });
}

/** The stored hash of this secret, or else a new one. Keeping it keeps other processes' caches valid. */
async function currentHash(stored: readonly string[], secret: string): Promise<string> {
  for (const hash of stored) if (await verifySecret(hash, secret)) return hash;
  return hashSecret(secret);
}
