/**
 * How authorizations end: one by itself, in its row; all of an identity or organization by one row of their endings; all
 * of a client by its row. sweep-authorizations.ts marks the rows afterwards.
 */
import { type SQL, sql } from "drizzle-orm";
import { confirmUnless } from "../../platform/database/confirm.ts";
import type { Database } from "../../platform/database/database.ts";
import { names, oneOf } from "../../platform/database/sql/readers.ts";
import { computed, isAmong, rowCount } from "../../platform/database/sql/statements.ts";
import { noRequest, originFields, type RequestOrigin } from "../../platform/messaging/outbox.ts";
import { AuthEvents, type RevocationReason, reasonName, recordEvent } from "../events.ts";
import { authorizations, clients, identityEndings, organizationEndings, replacedTokens } from "../schema.ts";

const authorization = names(authorizations, "a");
const { id, identityId, clientId, revokedAt, revocationReason } = names(authorizations);
const client = names(clients, "c");
const ending = names(identityEndings, "e");
const organization = names(organizationEndings, "o");

/** Whether neither client nor identity nor organization of the authorization in the row `a` has ended it; never null. */
const isOfCurrentGenerations = sql`
  exists (select from ${clients} c where ${client.clientId} = ${authorization.clientId}
    and ${client.generation} = ${authorization.clientGeneration} and ${client.disabledAt} is null offset 0)
  and not exists (select from ${identityEndings} e where ${ending.identityId} = ${authorization.identityId}
    and ${ending.generation} > ${authorization.identityGeneration} order by ${ending.generation} offset 0)
  and (${authorization.organizationId} is null or not exists (select from ${organizationEndings} o
    where ${organization.organizationId} = ${authorization.organizationId}
      and ${organization.generation} > ${authorization.organizationGeneration} offset 0))`;

/** Whether the authorization in the row `a` has not ended; never null. It may have expired. */
export const hasNotEnded: SQL = sql`(${authorization.revokedAt} is null and ${isOfCurrentGenerations})`;

/** The same, for several authorizations that are found by their ids: no index has this form of the condition. */
export const hasNotEndedById: SQL = sql`(num_nulls(${authorization.revokedAt}) = 1 and ${isOfCurrentGenerations})`;

/** The state of the authorization in the row `a`, by the database's clock. */
export const state = computed(
  oneOf(["ACTIVE", "REVOKED", "EXPIRED"]),
  sql`case when not ${hasNotEnded} then 'REVOKED'
    when ${authorization.expiresAt} <= clock_timestamp() then 'EXPIRED' else 'ACTIVE' end`,
);

/**
 * Ends one authorization, deletes what was kept for a retried refresh, and writes its event, in one statement; for
 * `REUSE` also the event that says so. Its end is confirmed once this resolves, also where it was ended before.
 * @param origin the request that ends it @param onlyIf a condition on the row `a`; none unless given
 */
export async function endAuthorization(
  db: Database,
  authorizationId: string,
  reason: "CLIENT" | "REUSE" | "USER" | "OPERATOR",
  origin: RequestOrigin,
  onlyIf: SQL = sql`true`,
): Promise<void> {
  const fields = { identityId, authorizationId: id, clientId, ...originFields(origin) };
  const revoked = { ...fields, reason: sql`${reasonName(reason)}::text` };
  const record = recordEvent(AuthEvents.authorizationRevoked, revoked, {
    at: revokedAt,
    from: sql`from ended`,
  });
  // By reading what the other event returns, it comes after it.
  const report = recordEvent(AuthEvents.authorizationReuseDetected, fields, {
    at: revokedAt,
    from: sql`from ended, recorded`,
  });
  await db.execute(sql`
    with ended as (
      update ${authorizations} a set ${revokedAt} = clock_timestamp(), ${revocationReason} = ${reason}
      where ${authorization.id} = ${authorizationId}::uuid and ${authorization.revokedAt} is null and ${onlyIf}
      returning ${authorization.id}, ${authorization.identityId}, ${authorization.clientId}, ${authorization.revokedAt}
    ), forgotten as (${forgetReplaced(sql`select ${id} from ended`)}), recorded as (${record})
    ${reason === "REUSE" ? sql`, reported as (${report})` : sql``}
    select ${confirmUnless(sql`exists (select from ended)`)}`);
}

/**
 * Ends all authorizations of an identity that have been created until now. Must be called in a transaction that has
 * locked, changed or deleted the row of the identity, so that the endings of one identity happen one after the other.
 * Endings for the same reason, with none between them, are one row, which is as the last of them: whoever repeats one
 * makes no rows. It is never left out, as something may be granted at this moment that it must end.
 * @param keptId the authorization that does not end, if it has not ended before; none unless given
 */
export async function endIdentity(
  tx: Database,
  identity: string,
  reason: "IDENTITY_DELETED" | "PASSWORD_CHANGED" | "USER" | "OPERATOR",
  { requestId, caller }: RequestOrigin = noRequest,
  keptId: string | null = null,
): Promise<void> {
  const { generation, ...ended } = names(identityEndings);
  const { identityGeneration } = names(authorizations);
  // The kept one becomes as new as those that are granted from now on. The statement does not see its own ending.
  await tx.execute(sql`
    with repeated as (
      update ${identityEndings} e set ${generation} = default, ${ended.endedAt} = clock_timestamp(),
        ${ended.requestId} = ${requestId}, ${ended.caller} = ${caller}, ${ended.sweptAt} = null
      where ${ending.identityId} = ${identity} and ${ending.reason} = ${reason} and ${ending.generation} = (
        select max(${generation}) from ${identityEndings} where ${ended.identityId} = ${identity})
      returning ${ending.generation}
    ), first as (
      insert into ${identityEndings}
        (${ended.identityId}, ${ended.reason}, ${ended.endedAt}, ${ended.requestId}, ${ended.caller})
      select ${identity}, ${reason satisfies RevocationReason}, clock_timestamp(), ${requestId}, ${caller}
      where not exists (select from repeated)
      returning ${generation}
    )
    update ${authorizations} a set ${identityGeneration} = ended.${generation}
    from (select * from repeated union all select * from first) as ended
    where ${authorization.id} = ${keptId}::uuid and ${authorization.identityId} = ${identity} and ${hasNotEnded}`);
}

/** Ends all authorizations for an organization that have been created until now. */
export async function endOrganization(
  db: Database,
  organizationId: string,
  { requestId, caller }: RequestOrigin,
): Promise<void> {
  const ended = names(organizationEndings);
  await db.execute(sql`
    insert into ${organizationEndings} as o
      (${ended.organizationId}, ${ended.generation}, ${ended.endedAt}, ${ended.requestId}, ${ended.caller})
    values (${organizationId}, 1, clock_timestamp(), ${requestId}, ${caller})
    on conflict (${ended.organizationId}) do update set ${ended.generation} = ${organization.generation} + 1,
      ${ended.endedAt} = excluded.${ended.endedAt}, ${ended.requestId} = excluded.${ended.requestId},
      ${ended.caller} = excluded.${ended.caller}, ${ended.sweptAt} = null`);
}

/**
 * Ends all authorizations, also those of clients that are not listed. What is granted while it runs may end with them.
 * @param caller who does so, for their events @returns the number of clients
 */
export async function endAll(db: Database, caller: string): Promise<number> {
  const { generation, endedBy } = names(clients);
  const raised = sql`${generation} = ${clients.generation} + 1, ${endedBy} = ${caller}`;
  return rowCount(db, sql`update ${clients} set ${raised} returning 1 as one`);
}

/** The statement that deletes what was kept for retried refreshes of these authorizations. */
export function forgetReplaced(authorizationIds: SQL): SQL {
  const { authorizationId } = names(replacedTokens);
  return sql`delete from ${replacedTokens} where ${isAmong(authorizationId, authorizationIds)}`;
}
