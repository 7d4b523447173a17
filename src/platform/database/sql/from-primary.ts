/** A check for look-ups that only the primary may serve: a standby may not know yet what was issued or revoked. */
import { sql } from "drizzle-orm";
import { unavailable } from "../../base/errors.ts";
import { boolean } from "./readers.ts";
import { computed } from "./statements.ts";

/** Whether the server that runs the statement is a standby, for the selection of the statement's only row. */
export const isStandby = computed(boolean, sql`pg_is_in_recovery()`);

/** The only row of such a statement. @throws unavailable if it is from a standby, or if there is none */
export function fromPrimary<Row extends { readonly isStandby: boolean }>(row: Row | undefined): Row {
  if (row?.isStandby === false) return row;
  throw unavailable("The database", new Error(row ? "it is a standby" : "it returned no row"));
}
