import { sql } from "drizzle-orm";
import { text } from "./readers.ts";
import { computed } from "./statements.ts";

/** Identifies the server that runs the statement, and its start. Servers behind one balancer differ in it. */
export const serverStart = computed(
  text,
  sql`format('%s:%s %s', host(inet_server_addr()), inet_server_port(), extract(epoch from pg_postmaster_start_time()))`,
);
