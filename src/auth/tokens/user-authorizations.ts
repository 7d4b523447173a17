/** The authorizations of a user, as he and an operator see them: listed with their state, and ended one by one. */
import { and, eq, type SQL, sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { listOf, names, nullable, oneOf, text } from "../../platform/database/sql/readers.ts";
import { computed, prepared, type RowOf, rows, selection } from "../../platform/database/sql/statements.ts";
import type { RequestOrigin } from "../../platform/messaging/outbox.ts";
import { authorizationNotFound } from "../errors.ts";
import { authorizations, identities, identityEndings, revocationReasons } from "../schema.ts";
import type { Confirmed } from "./confirmed.ts";
import { endAuthorization, hasNotEnded, state } from "./end-authorizations.ts";

/** The most authorizations of a page. */
const largestPage = 100;
/** Comes after every id. */
const afterAll = "ffffffff-ffff-ffff-ffff-ffffffffffff";
/**
 * An identity that is made anew under an id sees nothing of the one before. By as much the clock of the process that
 * has made it may be ahead of the database's.
 */
const clockSeconds = 60;

interface PageRequest {
  /** Leaves out those that have ended or expired; undefined: lists all. */
  readonly active: boolean | undefined;
  /** The id of the last one of the page before; undefined: the first page. */
  readonly after: string | undefined;
  /** Undefined: 20. */
  readonly size: number | undefined;
}

export interface UserAuthorizations {
  /** A page, the newest first, and whether there are more. */
  list(
    identityId: string,
    page: PageRequest,
  ): Promise<{ readonly content: readonly ListedAuthorization[]; readonly hasNext: boolean }>;
  /**
   * Ends one with all of its tokens, as strictly as a revocation. One that has ended keeps its reason.
   * @throws not_found if it is not the identity's
   */
  end(
    identityId: string,
    authorizationId: string,
    reason: "USER" | "OPERATOR",
    origin: RequestOrigin,
  ): Promise<void>;
}

const authorization = names(authorizations, "a");
const identity = names(identities, "i");
const ending = names(identityEndings, "e");

const isActive = sql`(${authorization.expiresAt} > clock_timestamp() and ${hasNotEnded})`;

const fields = {
  id: authorization.id,
  clientId: authorization.clientId,
  grantType: authorization.grantType,
  scopes: computed(listOf(text), sql`to_json(${authorization.scopes})`),
  state,
  /** Null where it has not ended. Before it is marked as revoked, by what has ended it. */
  reason: computed(
    nullable(oneOf(revocationReasons)),
    sql`coalesce(${authorization.revocationReason}, (
        select ${ending.reason} from ${identityEndings} e where ${ending.identityId} = ${authorization.identityId}
          and ${ending.generation} > ${authorization.identityGeneration} order by ${ending.generation} limit 1
      ), case when not ${hasNotEnded} then 'CLIENT_DISABLED' end)`,
  ),
  createdAt: authorization.createdAt,
  refreshedAt: authorization.refreshedAt,
  expiresAt: authorization.expiresAt,
  deviceName: authorization.deviceName,
  metadata: authorization.metadata,
};
const listed = selection(fields);
type ListedAuthorization = RowOf<typeof fields>;

/** One more than a page; in the text, as of a parameter PostgreSQL assumes a tenth of the table. */
const enough = sql.raw(`limit ${largestPage + 1}`);

/**
 * The newest of the identity by one index, and the newest that are marked as revoked by another one, however many there
 * are: no other index has this order, and the bounds are where PostgreSQL begins and stops reading.
 */
const selectPage = prepared(
  ["identityId", "after", "active", "count"],
  ({ identityId, after, active, count }) => {
    const newest = (condition: SQL) => sql`(
        select a.* from ${authorizations} a
        where ${authorization.identityId} >= ${identity.id}
          and (${authorization.identityId}, ${authorization.id}) < (${identity.id}, ${after}::uuid)
          and ${authorization.createdAt} > ${identity.createdAt} - ${clockSeconds}::int * interval '1 second'
          and ${condition}
        order by ${authorization.identityId} desc, ${authorization.id} desc ${enough})`;
    // A subquery, or PostgreSQL plans for few that are active, and sorts all of the identity's.
    const all = sql`not (select ${active}::boolean)`;
    const unmarked = sql`${authorization.revokedAt} is null and (${all} or ${isActive})`;
    const marked = sql`${authorization.revokedAt} is not null and ${all}`;
    return sql`
    select ${listed} from ${identities} i cross join lateral (${newest(unmarked)} union all ${newest(marked)}) as a
    where ${identity.id} = ${identityId} order by ${authorization.id} desc limit ${count}::int`;
  },
);

export function createUserAuthorizations(db: Database, confirmed: Confirmed): UserAuthorizations {
  return {
    async list(identityId, { active = false, after = afterAll, size = 20 }) {
      const most = Math.min(size, largestPage);
      const statement = selectPage({ identityId, after, active, count: most + 1 });
      const found = await rows(db, listed, statement);
      return { content: found.slice(0, most), hasNext: found.length > most };
    },

    async end(identityId, authorizationId, reason, origin) {
      const isIdentitys = and(
        eq(authorizations.id, authorizationId),
        eq(authorizations.identityId, identityId),
      );
      const [found] = await db.select({ id: authorizations.id }).from(authorizations).where(isIdentitys);
      if (!found) throw authorizationNotFound();
      await endAuthorization(db, authorizationId, reason, origin);
      await confirmed.untilStandbysKnow();
    },
  };
}
