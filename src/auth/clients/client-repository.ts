import { inArray, isNull, notInArray, type SQL, sql } from "drizzle-orm";
import { LRUCache } from "lru-cache";
import type { Database, Reads } from "../../platform/database/database.ts";
import { batched } from "../../platform/database/sql/batched-lookup.ts";
import { surelyNow } from "../running-time.ts";
import { clients } from "../schema.ts";

/** A client as it is stored. */
export type Client = typeof clients.$inferSelect;

/** How a client authenticates (RFC 7591 section 2): in the Authorization header, in the body, or by its id alone. */
export type AuthenticationMethod = "client_secret_basic" | "client_secret_post" | "none";

/** Milliseconds that a client, or that there is none, may be cached for checking credentials. */
const maxAgeMs = 1_000;
/** Ids of no enabled client that are cached, at most, and the characters that such an id has at most. */
const maxAbsent = { count: 10_000, characters: 128 };

/** Storage of clients. */
export interface ClientRepository {
  /**
   * The client as the database had it at most a second ago; undefined for one that is unknown or disabled. Issuing and
   * introspection check it again, in the statement that decides.
   */
  findEnabled(clientId: string): Promise<Client | undefined>;
  /** The client if it was found within the last second; undefined if it has to be looked up. */
  cachedEnabled(clientId: string): Client | undefined;
}

export function createClientRepository(reads: Reads): ClientRepository {
  const cache = new Map<string, { client: Client; readAt: number }>();
  /** When an id was looked up in vain; apart from the clients, which a flood of such ids must not displace. */
  const absent = new LRUCache<string, number>({
    max: maxAbsent.count,
    maxEntrySize: maxAbsent.characters,
    sizeCalculation: (_readAt, clientId) => Math.max(clientId.length, 1),
  });
  const isRecent = (readAt: number) => performance.now() - readAt < maxAgeMs;
  const lookUp = batched({
    load: async (ids: readonly string[]) => {
      const found = await reads
        .select()
        .from(clients)
        .where(sql`${inArray(clients.clientId, [...ids])} and ${isNull(clients.disabledAt)}`);
      return new Map(found.map((client) => [client.clientId, client]));
    },
  });
  function cachedEnabled(clientId: string): Client | undefined {
    const cached = cache.get(clientId);
    return cached && isRecent(cached.readAt) ? cached.client : undefined;
  }

  return {
    cachedEnabled,

    async findEnabled(clientId) {
      const cached = cachedEnabled(clientId);
      if (cached) return cached;
      const missedAt = absent.get(clientId);
      if (missedAt !== undefined && isRecent(missedAt)) return undefined;
      // Taken before the query, so that an entry is never older than its age says.
      const readAt = performance.now();
      const client = await lookUp(clientId);
      if (client) {
        cache.set(clientId, { client, readAt });
      } else {
        cache.delete(clientId);
        absent.set(clientId, readAt);
      }
      return client;
    },
  };
}

/** A client as it is listed; what else the row has is history. */
export type ListedClient = Omit<Client, "disabledAt" | "generation" | "endedBy">;

/** Days for which a client may be listed again and finds its authorizations as they were. */
const reversibleDays = 7;

/**
 * Whether a client has not been listed for so long, also in running time, that its authorizations have ended for good.
 */
export const isDisabledForGood: SQL = sql`
  ${clients.disabledAt} < ${surelyNow} - ${reversibleDays}::int * interval '1 day'`;

/**
 * Inserts or updates a client, in a transaction with `disableAllBut`. Keeps `registeredAt`. A client that was disabled
 * for good finds none of its authorizations.
 */
export async function saveClient(db: Database, client: ListedClient): Promise<void> {
  const { clientId: _key, registeredAt: _kept, ...changes } = client;
  await db
    .insert(clients)
    .values(client)
    .onConflictDoUpdate({
      target: clients.clientId,
      set: {
        ...changes,
        disabledAt: null,
        generation: sql`${clients.generation} + case when ${isDisabledForGood} then 1 else 0 end`,
      },
    });
}

/** Disables every client that is not listed; `saveClient` enables it again. */
export async function disableAllBut(db: Database, listed: readonly string[]): Promise<void> {
  const notListed = listed.length > 0 ? notInArray(clients.clientId, [...listed]) : sql`true`;
  await db
    .update(clients)
    .set({ disabledAt: sql`clock_timestamp()` })
    .where(sql`${clients.disabledAt} is null and ${notListed}`);
}
