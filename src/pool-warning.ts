/** Whether PostgreSQL has room for the connections of all workers. */
import { sql } from "drizzle-orm";
import type { RunnableService } from "./compose-services.ts";
import { integer } from "./platform/database/sql/readers.ts";
import { computed, onlyRow, selection } from "./platform/database/sql/statements.ts";
import type { Settings } from "./services.ts";

const limit = selection({ connections: computed(integer, sql`current_setting('max_connections')::int`) });

/**
 * What to change if the pools of all workers may exceed `max_connections`; undefined if they may not, if a pooler
 * stands between, or if the server cannot be asked.
 */
export async function poolWarning(
  settings: Settings,
  services: readonly Pick<RunnableService, "name" | "database">[],
): Promise<string | undefined> {
  const { workers } = settings.server;
  /** The connections to each server, and a database there that can be asked. */
  const servers = new Map<string, { readonly database: RunnableService["database"]; connections: number }>();
  for (const { name, database } of services) {
    const own = settings[name]?.database;
    if (own?.kind !== "postgres" || own.pooler !== "none") continue;
    const address = JSON.stringify(own.hosts);
    const server = servers.get(address) ?? { database, connections: 0 };
    server.connections += workers * own.poolSize;
    servers.set(address, server);
  }
  for (const { database, connections } of servers.values()) {
    const found = await onlyRow(database.db, limit, sql`select ${limit}`).catch(() => undefined);
    if (found === undefined || connections <= found.connections) continue;
    return (
      `WORKERS is ${workers}, and with DB_POOL_SIZE they may hold ${connections} connections to ` +
      `${database.description}, whose max_connections is ${found.connections}. Lower DB_POOL_SIZE, raise ` +
      "max_connections, or put a pooler between (DB_POOLER)."
    );
  }
  return undefined;
}
