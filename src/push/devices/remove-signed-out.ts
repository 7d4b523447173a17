import { sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/names.ts";
import { devices } from "../schema.ts";
import { removeDevices } from "./remove-devices.ts";

const { id, userId, tokenHash, authorizationId } = names(devices);

/**
 * Removes the devices of a user that were last registered with this authorization, which has ended. Can be repeated: a
 * device that the user registers again has another authorization.
 */
export async function removeSignedOut(db: Database, user: string, authorization: string): Promise<void> {
  const chosen = sql`
    select ${tokenHash} as chosen_hash from ${devices}
    where ${userId} = ${user} and ${authorizationId} = ${authorization} order by ${id} for update`;
  await removeDevices(db, chosen, "AUTHORIZATION_REVOKED");
}
