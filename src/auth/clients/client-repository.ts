import { inArray, notInArray, sql } from "drizzle-orm";
import { type BatchedLookup, batched } from "../../platform/batch.ts";
import type { Database } from "../../platform/database.ts";
import { clients } from "../schema.ts";
import type { Client } from "./client.ts";

/** Storage of clients. */
export interface ClientRepository {
  /**
   * Must answer the client as the database has it now, and undefined for one that is unknown or disabled:
   * a client that another process has disabled is refused by this one too.
   */
  readonly findEnabled: BatchedLookup<string, Client>;
}

export function createClientRepository(db: Database): ClientRepository {
  return {
    findEnabled: batched({
      load: async (ids: readonly string[]) => {
        const found = await db
          .select()
          .from(clients)
          .where(inArray(clients.clientId, [...ids]));
        return new Map(
          found.filter((client) => !client.disabledAt).map((client) => [client.clientId, client]),
        );
      },
    }),
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
