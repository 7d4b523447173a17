import { sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/names.ts";
import { rowCount } from "../../platform/database/statements.ts";
import { AuthEvents, type RevocationReason, reasonName, recordEvent } from "../events.ts";
import { authorizations } from "../schema.ts";

/** Selects one authorization, or all of an identity or of a client. */
type AuthorizationSelector =
  | { readonly id: string }
  | { readonly identityId: string }
  | { readonly clientId: string };

const { id, identityId, clientId, revokedAt, revocationReason, superseded } = names(authorizations);

/**
 * Ends authorizations that have not ended yet, deletes the token pairs kept for retries, and writes an event for
 * each, in one statement. Once it is committed, none of their tokens is active. Rows are locked in the order of
 * their ids, so that two statements that end the same authorizations do not deadlock.
 * @returns how many authorizations this call ended
 */
export async function endAuthorizations(
  db: Database,
  selector: AuthorizationSelector,
  reason: RevocationReason,
  now: Date,
): Promise<number> {
  const at = now.toISOString();
  const which =
    "id" in selector
      ? sql`${id} = ${selector.id}::uuid`
      : "identityId" in selector
        ? sql`${identityId} = ${selector.identityId}`
        : sql`${clientId} = ${selector.clientId}`;
  return rowCount(
    db,
    sql`
      with chosen as (
        select ${id} as chosen_id from ${authorizations}
        where ${which} and ${revokedAt} is null order by ${id} for update
      ), ended as (
        update ${authorizations}
        set ${revokedAt} = ${at}::timestamptz, ${revocationReason} = ${reason}, ${superseded} = '[]'
        from chosen where ${id} = chosen_id
        returning ${id}, ${identityId}, ${clientId}
      )
      ${recordEvent(
        AuthEvents.authorizationRevoked,
        { identityId, authorizationId: id, clientId, reason: sql`${reasonName(reason)}::text` },
        now,
        sql`from ended`,
      )}`,
  );
}
