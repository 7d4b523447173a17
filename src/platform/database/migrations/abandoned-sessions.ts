/**
 * How the server notices that the process of a session is gone. A statement would otherwise go on, with its locks, for
 * as long as an index takes, or a dump for which that waits.
 */
import { sql } from "drizzle-orm";
import { sqlState } from "../../base/database-errors.ts";
import type { Executor } from "../database.ts";

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
