import { inArray, isNull, notInArray, sql } from "drizzle-orm";
import { batched } from "../../platform/database/batched-lookup.ts";
import type { Database } from "../../platform/database/database.ts";
import { clients } from "../schema.ts";
import type { Client } from "./client.ts";

/** Milliseconds that a client may be remembered for checking its credentials. */
const freshMs = 1_000;

/** Storage of clients. */
export interface ClientRepository {
  /**
   * Must answer the client as the database had it at most a second ago, and undefined for one that is unknown
   * or disabled. What a second could let through is a call by a client that another process has just
   * disabled; issuing and introspection check the client again, in the statement that decides.
   */
  findEnabled(clientId: string): Promise<Client | undefined>;
  /** The same of one that was found within the last second; undefined for one that has to be looked up. */
  recallEnabled(clientId: string): Client | undefined;
}

export function createClientRepository(db: Database): ClientRepository {
  const known = new Map<string, { client: Client; readAt: number }>();
  const look = batched({
    load: async (ids: readonly string[]) => {
      const found = await db
        .select()
        .from(clients)
        .where(sql`${inArray(clients.clientId, [...ids])} and ${isNull(clients.disabledAt)}`);
      return new Map(found.map((client) => [client.clientId, client]));
    },
  });
  function recallEnabled(clientId: string): Client | undefined {
    const remembered = known.get(clientId);
    return remembered && performance.now() - remembered.readAt < freshMs ? remembered.client : undefined;
  }

  return {
    recallEnabled,

    async findEnabled(clientId) {
      const remembered = recallEnabled(clientId);
      if (remembered) return remembered;
      // Counted from before the question, so that what is remembered is never older than it seems.
      const readAt = performance.now();
      const client = await look(clientId);
      if (client) known.set(clientId, { client, readAt });
      else known.delete(clientId);
      return client;
    },
  };
}

/** Must be called in a transaction with `disableAllBut`. Keeps the day of registration. */
export async function saveClient(db: Database, client: Omit<Client, "disabledAt">): Promise<void> {
  const { clientId: _key, registeredAt: _kept, ...changes } = client;
  await db
    .insert(clients)
    .values(client)
    .onConflictDoUpdate({ target: clients.clientId, set: { ...changes, disabledAt: null } });
}

/** Disables every client that is not listed. Answers the ids of those that were enabled until now. */
export async function disableAllBut(db: Database, listed: readonly string[], now: Date): Promise<string[]> {
  const notListed = listed.length > 0 ? notInArray(clients.clientId, [...listed]) : sql`true`;
  const disabled = await db
    .update(clients)
    .set({ disabledAt: now })
    .where(sql`${clients.disabledAt} is null and ${notListed}`)
    .returning({ clientId: clients.clientId });
  return disabled.map(({ clientId }) => clientId);
}
