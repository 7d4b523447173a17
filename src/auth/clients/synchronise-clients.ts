/**
 * Synchronises the table of clients with the settings, at start. A client that is no longer listed is disabled until it
 * is listed again. Of two lists, the one with the higher revision holds.
 */
import { eq, inArray } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import type { Database } from "../../platform/database/database.ts";
import { SettingsError } from "../../platform/settings/settings.ts";
import { canonicalList } from "../client-settings.ts";
import { hashSecret, verifySecret } from "../password-hashing/argon2id.ts";
import { clientLists, clients, identities } from "../schema.ts";
import type { ClientRegistration } from "../settings.ts";
import type { VerifiedSecrets } from "./authenticate-client.ts";
import { disableAllBut, type ListedClient, saveClient } from "./client-repository.ts";

interface Dependencies {
  readonly db: Database;
  readonly clock: Clock;
  readonly verified: VerifiedSecrets;
  /** Told in a sentence that two lists differ. */
  readonly warn: (message: string) => void;
}

/** The list of the settings. */
interface ClientList {
  readonly registrations: readonly ClientRegistration[];
  /** Undefined: the list is lower than any with a revision. */
  readonly revision: number | undefined;
}

/**
 * @throws SettingsError if the stored list has the same revision and another content, or if an identity has the id of a
 *   client that may act for no user
 */
export async function synchroniseClients(dependencies: Dependencies, list: ClientList): Promise<void> {
  const { db, warn } = dependencies;
  const content = canonicalList(list.registrations);
  const rows = await listedClients(dependencies, list.registrations);
  // Before the transaction, for whose lock others wait. A list that is the stored one keeps its hash.
  const [known] = await db.select().from(clientLists).where(eq(clientLists.onlyRow, onlyRow));
  const contentHash = await currentHash(known ? [known.contentHash] : [], content);
  const warnings = await db.transaction(async (tx) => {
    const warned: string[] = [];
    // Made first, so that processes that start together wait for one another.
    await tx.insert(clientLists).values({ onlyRow, revision: null, contentHash }).onConflictDoNothing();
    const [stored] = await tx
      .select()
      .from(clientLists)
      .where(eq(clientLists.onlyRow, onlyRow))
      .for("update");
    if (!stored) throw new Error("the row of the list of clients is not there");
    const isNew = stored.contentHash !== known?.contentHash && stored.contentHash !== contentHash;
    const isSame = isNew
      ? await verifySecret(stored.contentHash, content)
      : stored.contentHash === contentHash;
    if (!isToBeTaken(list.revision, { revision: stored.revision, isSame }, (message) => warned.push(message)))
      return warned;
    await refuseMistakable(tx, rows);
    for (const row of rows) await saveClient(tx, row);
    await disableAllBut(
      tx,
      rows.map(({ clientId }) => clientId),
    );
    const revision = list.revision ?? null;
    if (isSame && revision === stored.revision) return warned;
    await tx.update(clientLists).set({ revision, contentHash }).where(eq(clientLists.onlyRow, onlyRow));
    return warned;
  });
  for (const warning of warnings) warn(warning);
}

/**
 * Whether a list replaces the stored one; warns where the two differ in an unexpected way.
 * @throws SettingsError if only their content differs
 */
function isToBeTaken(
  revision: number | undefined,
  stored: { readonly revision: number | null; readonly isSame: boolean },
  warn: (message: string) => void,
): boolean {
  if (stored.revision === null) {
    if (revision === undefined && !stored.isSame) warn(lastStartWins);
    return true;
  }
  if (revision === undefined || revision < stored.revision) {
    const own = revision === undefined ? "has no revision" : `is of revision ${revision}`;
    warn(
      `OAUTH_SERVER_CLIENTS ${own} and is not taken: revision ${stored.revision} is in use. To go back to an older list, give it a higher OAUTH_SERVER_CLIENTS_REVISION.`,
    );
    return false;
  }
  if (revision === stored.revision && !stored.isSame) throw sameRevision(revision);
  return true;
}

/** Refuses a client whose tokens would have the `sub` of a user (RFC 9068 section 5). */
async function refuseMistakable(tx: Database, rows: readonly ListedClient[]): Promise<void> {
  const acting = rows.filter(({ grantTypes }) => grantTypes.includes("client_credentials"));
  if (acting.length === 0) return;
  const ids = acting.map(({ clientId }) => clientId);
  const [found] = await tx.select({ id: identities.id }).from(identities).where(inArray(identities.id, ids));
  if (!found) return;
  throw new SettingsError([
    {
      name: "OAUTH_SERVER_CLIENTS",
      what: `has the grant client_credentials for the client ${found.id}, whose tokens would be taken for those of the identity ${found.id}: give the client another id`,
      example: `OAUTH_SERVER_CLIENTS=[{"clientId":"${found.id}-client",…}]`,
    },
  ]);
}

const lastStartWins =
  "OAUTH_SERVER_CLIENTS differs from the list in use, and replaces it: without OAUTH_SERVER_CLIENTS_REVISION the last start wins.";

/** The key of the only row of the table. */
const onlyRow = 1;

function sameRevision(revision: number): SettingsError {
  return new SettingsError([
    {
      name: "OAUTH_SERVER_CLIENTS_REVISION",
      what: `is that of the list in use, which has other content than OAUTH_SERVER_CLIENTS: a list that changes needs a higher revision`,
      example: `OAUTH_SERVER_CLIENTS_REVISION=${revision + 1}`,
    },
  ]);
}

async function listedClients(
  { db, clock, verified }: Dependencies,
  registrations: readonly ClientRegistration[],
): Promise<ListedClient[]> {
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
  return rows;
}

/** The stored hash of this secret, or else a new one. Keeping it keeps other processes' caches valid. */
async function currentHash(stored: readonly string[], secret: string): Promise<string> {
  for (const hash of stored) if (await verifySecret(hash, secret)) return hash;
  return hashSecret(secret);
}
