import { type SQL, sql } from "drizzle-orm";
import { unavailable } from "../../platform/base/errors.ts";
import { type BatchedLookup, batched } from "../../platform/database/batched-lookup.ts";
import { arrayLiteral, type Reads } from "../../platform/database/database.ts";
import { names } from "../../platform/database/names.ts";
import { boolean, integer, listOf } from "../../platform/database/readers.ts";
import type { Standbys } from "../../platform/database/standbys.ts";
import { computed, listed, prepared, rows, selection } from "../../platform/database/statements.ts";
import { authorizations, revokedAccessTokens } from "../schema.ts";
import { authorizationIdLength } from "./access-token.ts";
import { hasNotEnded } from "./end-authorizations.ts";

/** Look-ups of authorizations. presented-token.ts has that of refresh tokens. */
export interface AuthorizationRepository {
  /**
   * Whether the access token with this jti may be active: its authorization has not ended, its client is
   * enabled, and it has not been revoked individually. The query always starts after the call, so its result
   * reflects everything that any process has committed before the call.
   * @throws unavailable if the database is a standby, which may not know yet what was revoked
   */
  readonly isLive: BatchedLookup<string, true>;
}

/** @param standbys none unless given: only the primary is asked */
export function createAuthorizationRepository(reads: Reads, standbys?: Standbys): AuthorizationRepository {
  const atStandbys = standbys && liveAtStandbys(standbys);
  return {
    isLive: batched({
      async load(jtis: readonly string[]) {
        const live = (await atStandbys?.(jtis)) ?? new Map<string, true>();
        // Of what a standby does not find it cannot know: it may be newer than its state.
        const left = jtis.filter((jti) => !live.has(jti));
        if (left.length > 0) for (const [jti] of await liveTokens(reads, left)) live.set(jti, true);
        return live;
      },
    }),
  };
}

const authorization = names(authorizations, "a");
const revoked = names(revokedAccessTokens, "r");

/** The positions in the list of the jtis that are live. In one row: many rows take the driver several times as long. */
const places = computed(listOf(integer), sql`coalesce(json_agg(requested.place), '[]')`);

const livePlaces = selection({
  places,
  isStandby: computed(boolean, sql`pg_is_in_recovery()`),
});

const liveStatement = (selected: SQL) =>
  prepared(
    ["jtis"],
    ({ jtis }) => sql`
    select ${selected}
    from ${listed(jtis)} with ordinality as requested (value, place)
    join ${authorizations} a on ${authorization.id} = left(requested.value, ${authorizationIdLength}::int)::uuid
    where ${hasNotEnded}
      and not exists (select from ${revokedAccessTokens} r where ${revoked.jti} = requested.value)`,
  );

const selectLive = liveStatement(livePlaces);

async function liveTokens(reads: Reads, jtis: readonly string[]): Promise<Map<string, true>> {
  const [found] = await rows(reads, livePlaces, selectLive({ jtis: arrayLiteral(jtis) }));
  if (found?.isStandby !== false) throw unavailable("The database", new Error("it is a standby"));
  return liveOf(jtis, found.places);
}

/** The tokens of which a standby says that they are live; none if no standby may be relied on. */
function liveAtStandbys(standbys: Standbys) {
  const selected = selection({ ...standbys.evidence, places });
  const statement = liveStatement(selected);
  return async (jtis: readonly string[]): Promise<Map<string, true>> => {
    const found = await standbys.read(async (reads) => {
      const [row] = await rows(reads, selected, statement({ jtis: arrayLiteral(jtis) }));
      if (!row) throw new Error("an aggregate returned no row");
      return row;
    });
    return liveOf(jtis, found?.places ?? []);
  };
}

function liveOf(jtis: readonly string[], places: readonly number[]): Map<string, true> {
  const live = new Map<string, true>();
  for (const place of places) {
    const jti = jtis[place - 1];
    if (jti === undefined) throw new Error(`The database returned place ${place} of ${jtis.length}`);
    live.set(jti, true);
  }
  return live;
}
