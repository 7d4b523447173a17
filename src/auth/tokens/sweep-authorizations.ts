/**
 * Marks authorizations as revoked that have ended with their identity, organization or client, and writes their events.
 * It decides nothing: their tokens are inactive since the ending.
 */
import { type SQL, sql } from "drizzle-orm";
import type { PgTable } from "drizzle-orm/pg-core";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/readers.ts";
import { ctid, isAmong } from "../../platform/database/sql/statements.ts";
import { inBatches, limit } from "../batches.ts";
import { isDisabledForGood } from "../clients/client-repository.ts";
import { AuthEvents, reasonNameOf, recordEvent } from "../events.ts";
import { authorizations, clients, identityEndings, organizationEndings } from "../schema.ts";
import { forgetReplaced } from "./end-authorizations.ts";

/** Hours that an ending is kept after its sweep: longer than any statement that began before it can last. */
const keptHours = 24;

const authorization = names(authorizations, "a");
const client = names(clients, "c");
const ending = names(identityEndings, "e");
const organization = names(organizationEndings, "e");
const earlier = names(identityEndings, "earlier");
const { id, identityId, clientId, revokedAt, revocationReason } = names(authorizations);

/** Whether the authorization in the row `a` ended with the ending in the row `e`, or an earlier one. */
const endedWithIdentity = sql`${authorization.identityId} = ${ending.identityId}
  and ${authorization.identityGeneration} < ${ending.generation} and ${authorization.revokedAt} is null`;

/** Whether the authorization in the row `a` ended with the organization in the row `e`. */
const endedWithOrganization = sql`${authorization.organizationId} = ${organization.organizationId}
  and ${authorization.organizationGeneration} < ${organization.generation} and ${authorization.revokedAt} is null`;

/** Null if no authorization is left that ended with the ending in the row `e`. */
const leftToMark = (ended: SQL) =>
  sql`(select ${authorization.id} from ${authorizations} a where ${ended} limit 1)`;

/** @param from the authorizations `a` and what they ended with @param ended `chosen_time` and the others of it */
function markAndRecord(from: SQL, ended: SQL): SQL {
  const origin = { requestId: sql`chosen_request`, caller: sql`chosen_caller` };
  const fields = {
    identityId,
    authorizationId: id,
    clientId,
    reason: reasonNameOf(revocationReason),
    ...origin,
  };
  return sql`
    with chosen as (
      select ${authorization.id} as chosen_id, ${ended} ${from}
      ${limit}
    ), ended as (
      update ${authorizations} set ${revokedAt} = chosen_time, ${revocationReason} = chosen_why
      from chosen where ${id} = chosen_id and ${isAmong(id, sql`select chosen_id from chosen`)}
      returning ${id}, ${identityId}, ${clientId}, ${revokedAt}, ${revocationReason}, chosen_request, chosen_caller
    ), forgotten as (${forgetReplaced(sql`select ${id} from ended`)})
    ${recordEvent(AuthEvents.authorizationRevoked, fields, { at: revokedAt, from: sql`from ended` })}`;
}

/** @param ended whether the authorization `a` is to be marked for the ending `e` @param why the reason */
const sweepOf = (endings: PgTable, ended: SQL, why: SQL): SQL =>
  markAndRecord(
    sql`from ${endings} e cross join lateral (
      select ${authorization.id} from ${authorizations} a where ${ended}
      ${limit} for update of a skip locked) as a
    where ${ending.sweptAt} is null`,
    sql`${ending.endedAt} as chosen_time, ${why} as chosen_why,
    ${ending.requestId} as chosen_request, ${ending.caller} as chosen_caller`,
  );

/** Each authorization by the first ending that concerns it, whose reason is the true one. */
const sweepIdentities = sweepOf(
  identityEndings,
  sql`${endedWithIdentity} and not exists (
        select from ${identityEndings} earlier
        where ${earlier.identityId} = ${ending.identityId} and ${earlier.sweptAt} is null
          and ${earlier.generation} > ${authorization.identityGeneration}
          and ${earlier.generation} < ${ending.generation})`,
  sql`${ending.reason}`,
);

const sweepOrganizations = sweepOf(organizationEndings, endedWithOrganization, sql`'ORGANIZATION'::text`);

/** No client of generation 0 has lost any. */
const sweepClients = markAndRecord(
  sql`from ${clients} c cross join lateral (
      select ${authorization.id} from ${authorizations} a
      where ${authorization.clientId} = ${client.clientId} and ${authorization.revokedAt} is null
        and ${authorization.clientGeneration} < ${client.generation}
      order by ${authorization.clientGeneration}
      ${limit} for update of a skip locked) as a
    where ${client.generation} > 0`,
  sql`coalesce(${client.disabledAt}, clock_timestamp()) as chosen_time, 'CLIENT_DISABLED'::text as chosen_why,
    ''::text as chosen_request, ${client.endedBy} as chosen_caller`,
);

/**
 * The statement that ends the sweep of endings, for as many of them. Endings are found by their ctid, and none that is
 * chosen here or below is missed: whatever updates an ending makes it one that is not chosen.
 */
const finish = (endings: PgTable, ended: SQL): SQL => {
  const { sweptAt } = names(identityEndings);
  const swept = sql`
    select e.ctid from ${endings} e where ${ending.sweptAt} is null and ${leftToMark(ended)} is null
    ${limit} for update skip locked`;
  return sql`update ${endings} set ${sweptAt} = clock_timestamp() where ${isAmong(ctid, swept)} returning 1 as one`;
};
const finishIdentities = finish(identityEndings, endedWithIdentity);
const finishOrganizations = finish(organizationEndings, endedWithOrganization);

/**
 * Marks what has ended, in batches, until nothing is left or `stopping` is aborted.
 * @param marked is told of each batch how many authorizations it had
 */
export async function sweepAuthorizations(
  db: Database,
  stopping?: AbortSignal,
  marked?: (rows: number) => void,
): Promise<void> {
  const marking = { stopping, ...(marked && { done: marked }), rests: true };
  await inBatches(db, sweepClients, marking);
  await inBatches(db, sweepIdentities, marking);
  await inBatches(db, finishIdentities, { stopping });
  await inBatches(db, sweepOrganizations, marking);
  await inBatches(db, finishOrganizations, { stopping });
}

/** Makes the disabling of a client final, after a while in which it was not listed; once. */
export const endDisabledClients: SQL = (() => {
  const set = names(clients);
  return sql`
    update ${clients} set ${set.generation} = ${clients.generation} + 1, ${set.endedBy} = ''
    where ${isDisabledForGood} and ${clients.generation} = (
      select max(${authorization.clientGeneration}) from ${authorizations} a
      where ${authorization.clientId} = ${clients.clientId} and ${authorization.revokedAt} is null)
    returning 1 as one`;
})();

const kept = names(identityEndings);
/** Endings whose sweep is long over, and that some (`is not null`) or no (`is null`) authorization still needs. */
const sweptLongAgo = (which: SQL) =>
  isAmong(
    ctid,
    sql`
    select e.ctid from ${identityEndings} e
    where ${ending.sweptAt} < (select clock_timestamp() - ${keptHours}::int * interval '1 hour')
      and ${leftToMark(endedWithIdentity)} ${which}
    ${limit} for update skip locked`,
  );

/** Has endings swept again that a late authorization still needs. */
export const sweepEndingsAgain: SQL = sql`
  update ${identityEndings} set ${kept.sweptAt} = null where ${sweptLongAgo(sql`is not null`)} returning 1 as one`;

/** The same of organizations, whose endings are not removed: of the last hours, in which a statement may end late. */
export const sweepOrganizationsAgain: SQL = sql`
  update ${organizationEndings} e set ${names(organizationEndings).sweptAt} = null
  where ${organization.sweptAt} > (select clock_timestamp() - ${keptHours}::int * interval '1 hour')
    and ${leftToMark(endedWithOrganization)} is not null returning 1 as one`;

/** Removes endings that nothing needs any more. */
export const removeEndings: SQL = sql`
  delete from ${identityEndings} where ${sweptLongAgo(sql`is null`)} returning 1 as one`;
