import { sql } from "drizzle-orm";
import { type Database, rows } from "../../platform/database/database.ts";
import { AuthEvents, type RevocationReason, reasonName, recordEvent } from "../events.ts";

/** Which authorizations. */
type AuthorizationSelector =
  | { readonly id: string }
  | { readonly identityId: string }
  | { readonly clientId: string };

/**
 * Ends authorizations that have not ended yet, forgets what could continue them, and writes an event for
 * each, in one statement. From its commit on none of their tokens is active. Rows are locked in the order of
 * their ids, so that two that end the same ones at once wait for each other and do not deadlock.
 * @returns how many ended now
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
      ? sql`id = ${selector.id}::uuid`
      : "identityId" in selector
        ? sql`identity_id = ${selector.identityId}`
        : sql`client_id = ${selector.clientId}`;
  const ended = await rows(
    db,
    sql`
      with chosen as (
        select id as chosen_id from auth.authorizations
        where ${which} and revoked_at is null order by id for update
      ), ended as (
        update auth.authorizations
        set revoked_at = ${at}::timestamptz, revocation_reason = ${reason}, superseded = '[]'
        from chosen where id = chosen_id
        returning id, identity_id, client_id
      )
      ${recordEvent(
        AuthEvents.authorizationRevoked,
        {
          identityId: sql`identity_id`,
          authorizationId: sql`id`,
          clientId: sql`client_id`,
          reason: sql`${reasonName(reason)}::text`,
        },
        now,
        sql`from ended`,
      )}`,
  );
  return ended.length;
}
