/**
 * How the server notices that the process of a session is gone. A statement would otherwise go on, with its locks, for
 * as long as an index takes, or a dump for which that waits.
 */
import { sql } from "drizzle-orm";
import { sqlState } from "../../base/database-errors.ts";
import type { Executor } from "../database.ts";

/**
 * Where a machine or a network is lost, nobody closes the connection: after so many seconds of silence the server asks
 * the other end whether it is there, so many seconds later again, and gives the connection up when so many of these
 * questions were not answered. Parameters of the session; a connection over a socket of Unix goes without.
 */
export const keepalives = {
  tcp_keepalives_idle: 10,
  tcp_keepalives_interval: 10,
  tcp_keepalives_count: 3,
} as const;

/**
 * Milliseconds between the server's looks, while it runs a statement, whether the connection was closed or given up.
 */
const checkMs = 10_000;

/** PostgreSQL before version 14 does not know the parameter, and on Windows it takes no value but 0. */
const refused = ["42704", "22023"];

/** Lets the server look whether its client is gone. One that cannot goes on until the statement ends. */
export async function checkForClient(
  db: Executor,
  parameter = "client_connection_check_interval",
  value = String(checkMs),
): Promise<void> {
  try {
    await db.execute(sql`select set_config(${parameter}, ${value}, false)`);
  } catch (error) {
    if (!refused.includes(sqlState(error) ?? "")) throw error;
  }
}
