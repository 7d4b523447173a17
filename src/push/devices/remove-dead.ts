import { getTableName, sql } from "drizzle-orm";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/names.ts";
import { epochMs } from "../../platform/database/sql/statements.ts";
import { devices } from "../schema.ts";
import { removeDevices } from "./remove-devices.ts";

/** A device that its provider reports dead. */
export interface DeadDevice {
  readonly deviceId: number;
  /** Milliseconds since the epoch as of which the provider reports it dead. */
  readonly asOf: number;
}

/**
 * Removes dead devices, in the caller's transaction. A device that its app renewed at `asOf` or later is alive and
 * stays.
 * @returns how many were removed
 */
export async function removeDeadDevices(tx: Database, dead: readonly DeadDevice[]): Promise<number> {
  if (dead.length === 0) return 0;
  const ids = arrayLiteral(dead.map(({ deviceId }) => deviceId));
  const moments = arrayLiteral(dead.map(({ asOf }) => asOf));
  const { id, tokenHash, renewedAt } = names(devices);
  const chosen = sql`
    select ${tokenHash} as chosen_hash from ${devices}
    join unnest(${ids}::bigint[], ${moments}::float8[]) as report (dead_id, dead_since) on ${id} = dead_id
    where ${epochMs(renewedAt)} < dead_since
    order by ${id} for update of ${sql.identifier(getTableName(devices))}`;
  return removeDevices(tx, chosen, "DEAD");
}
