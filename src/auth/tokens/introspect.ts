import { type SQL, sql } from "drizzle-orm";
import { arrayLiteral, type Reads } from "../../platform/database/database.ts";
import { batched } from "../../platform/database/sql/batched-lookup.ts";
import { integer, listOf, names } from "../../platform/database/sql/readers.ts";
import {
  arrayItems,
  computed,
  fromPrimary,
  isStandby,
  prepared,
  rows,
  selection,
} from "../../platform/database/sql/statements.ts";
import type { Standbys } from "../../platform/database/standbys/standbys.ts";
import { authorizations, revokedAccessTokens } from "../schema.ts";
import { type AccessTokenClaims, type AccessTokens, authorizationIdLength } from "./access-token.ts";
import { hasNotEnded } from "./end-authorizations.ts";

/** Tokens that do not wait for the query that runs. */
const enoughKeys = 8;

/** Look-ups of authorizations. @param standbys that are read from; unless given, only the primary is asked */
export function createAuthorizationRepository(reads: Reads, standbys?: Standbys) {
  const findAtStandbys = standbys && activeAtStandbys(standbys);
  return {
    /**
     * Whether the access token with this jti may be active. The result reflects all that was committed before the call.
     * @throws unavailable if the server that was asked as the primary turns out to be a standby
     */
    isActive: batched({
      enoughKeys,
      async load(jtis: readonly string[]) {
        if (!findAtStandbys) return activeAtPrimary(reads, jtis);
        const active = await findAtStandbys(jtis);
        // A token that a standby does not find may be newer than what it has replayed, so the primary is asked.
        const left = jtis.filter((jti) => !active.has(jti));
        if (left.length > 0) for (const [jti] of await activeAtPrimary(reads, left)) active.set(jti, true);
        return active;
      },
    }),
  };
}

const authorization = names(authorizations, "a");
const revoked = names(revokedAccessTokens, "r");

/** The positions in the list of the active jtis, in one row: the driver takes several times as long for many. */
const ordinals = computed(listOf(integer), sql`coalesce(json_agg(a.ordinal), '[]')`);

const activeOrdinals = selection({ ordinals, isStandby });

/** The columns of an authorization that tell whether it has ended. */
const ends = sql`${authorization.revokedAt}, ${authorization.clientId}, ${authorization.clientGeneration},
  ${authorization.identityId}, ${authorization.identityGeneration},
  ${authorization.organizationId}, ${authorization.organizationGeneration}`;

/** `offset 0` keeps the conditions out of the partitions: the authorizations are found first. */
const activeStatement = (selected: SQL) =>
  prepared(
    ["jtis"],
    ({ jtis }) => sql`
    select ${selected}
    from (
      select requested.value, requested.ordinal, ${ends}
      from (
        select value, ordinal, left(value, ${authorizationIdLength}::int)::uuid as requested_id
        from ${arrayItems(jtis)} with ordinality as items (value, ordinal)
        offset 0
      ) as requested
      join ${authorizations} a on ${authorization.id} = requested.requested_id
      offset 0
    ) as a
    where ${hasNotEnded} and not exists (select from ${revokedAccessTokens} r where ${revoked.jti} = a.value)`,
  );

const selectActive = activeStatement(activeOrdinals);

async function activeAtPrimary(reads: Reads, jtis: readonly string[]): Promise<Map<string, true>> {
  const [row] = await rows(reads, activeOrdinals, selectActive({ jtis: arrayLiteral(jtis) }));
  return activeOf(jtis, fromPrimary(row).ordinals);
}

/** The tokens that a standby finds active; none if no standby may be relied on. */
function activeAtStandbys(standbys: Standbys) {
  const selected = selection({ ...standbys.evidence, ordinals });
  const statement = activeStatement(selected);
  return async (jtis: readonly string[]): Promise<Map<string, true>> => {
    const found = await standbys.read(async (reads) => {
      const [row] = await rows(reads, selected, statement({ jtis: arrayLiteral(jtis) }));
      if (!row) throw new Error("an aggregate returned no row");
      return row;
    });
    return activeOf(jtis, found?.ordinals ?? []);
  };
}

function activeOf(jtis: readonly string[], ordinals: readonly number[]): Map<string, true> {
  const active = new Map<string, true>();
  for (const ordinal of ordinals) {
    const jti = jtis[ordinal - 1];
    if (jti === undefined) throw new Error(`The database returned ordinal ${ordinal} of ${jtis.length}`);
    active.set(jti, true);
  }
  return active;
}

/**
 * The claims of an access token that is active; undefined for any other text. Reads the state from the database each
 * time and throws if that fails: a token is never reported as active from a cache.
 */
export type Introspect = (token: string) => Promise<AccessTokenClaims | undefined>;

interface Dependencies {
  readonly accessTokens: AccessTokens;
  readonly authorizations: ReturnType<typeof createAuthorizationRepository>;
}

export function createIntrospect({ accessTokens, authorizations }: Dependencies): Introspect {
  return async (token) => {
    const verifying = accessTokens.verify(token);
    const claims = verifying instanceof Promise ? await verifying : verifying;
    return claims && (await authorizations.isActive(claims.jti)) ? claims : undefined;
  };
}
