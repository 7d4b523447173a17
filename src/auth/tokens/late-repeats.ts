import { sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { integer, names } from "../../platform/database/sql/readers.ts";
import { computed, onlyRow, selection } from "../../platform/database/sql/statements.ts";
import { originFields, type RequestOrigin } from "../../platform/messaging/outbox.ts";
import { AuthEvents, recordEvent } from "../events.ts";
import { authorizations } from "../schema.ts";
import { endAuthorization } from "./end-authorizations.ts";
import { isLateRepeat } from "./presented-token.ts";
import type { RefreshToken } from "./refresh-token.ts";

/** Rotations in a row with a late repeat that are reuse. An app that was killed comes back once, and then goes on. */
const reuseAt = 3;

const authorization = names(authorizations, "a");
const { id, identityId, clientId, lateRotations, wasRepeatedLate } = names(authorizations);

/** Those of before, where this request has counted none. */
const noted = selection({
  inARow: computed(
    integer,
    sql`coalesce((select ${lateRotations} from counted), ${authorization.lateRotations}, 0)`,
  ),
});

/**
 * Counts the late repeat of the last rotation, once for each rotation, and writes its event; the third one in a row ends
 * the authorization. The window is judged by the database's clock, in the statement that counts.
 * @returns whether it is reuse
 */
export async function noteLateRepeat(
  db: Database,
  token: RefreshToken,
  origin: RequestOrigin,
): Promise<boolean> {
  const { authorizationId } = token;
  const fields = { identityId, authorizationId: id, clientId, ...originFields(origin) };
  const record = recordEvent(AuthEvents.refreshRepeatedLate, fields, {
    at: sql`clock_timestamp()`,
    from: sql`from counted`,
  });
  const { inARow } = await onlyRow(
    db,
    noted,
    sql`
    with counted as (
      update ${authorizations} a set ${wasRepeatedLate} = true, ${lateRotations} = ${authorization.lateRotations} + 1
      where ${authorization.id} = ${authorizationId}::uuid and ${authorization.revokedAt} is null
        and not ${authorization.wasRepeatedLate} and ${isLateRepeat(token)}
      returning ${authorization.id}, ${authorization.identityId}, ${authorization.clientId}, ${authorization.lateRotations}
    ), recorded as (${record})
    select ${noted} from ${authorizations} a where ${authorization.id} = ${authorizationId}::uuid`,
  );
  if (inARow < reuseAt) return false;
  const isThird = sql`${authorization.lateRotations} >= ${reuseAt}::int and ${isLateRepeat(token)}`;
  await endAuthorization(db, authorizationId, "REUSE", origin, isThird);
  return true;
}
