import { eq, sql } from "drizzle-orm";
import { type BatchedLookup, batched } from "../../platform/database/batched-lookup.ts";
import { arrayLiteral, type Database, type Reads } from "../../platform/database/database.ts";
import { names } from "../../platform/database/names.ts";
import { integer, listOf } from "../../platform/database/readers.ts";
import { computed, prepared, rowCount, rows, selection } from "../../platform/database/statements.ts";
import { AuthEvents, recordEvent } from "../events.ts";
import { authorizations, clients, revokedAccessTokens } from "../schema.ts";
import { authorizationIdLength } from "./access-token.ts";

/** An authorization as it is stored. */
export type Authorization = typeof authorizations.$inferSelect;

type AuthorizationState = "ACTIVE" | "REVOKED" | "EXPIRED";

/** @param now milliseconds since the epoch */
export function stateOf({ revokedAt, expiresAt }: Authorization, now: number): AuthorizationState {
  if (revokedAt) return "REVOKED";
  return expiresAt.getTime() <= now ? "EXPIRED" : "ACTIVE";
}

/** Look-ups of authorizations. */
export interface AuthorizationRepository {
  find(id: string): Promise<Authorization | undefined>;
  /**
   * Whether the access token with this jti may be active: its authorization has not ended, its client is
   * enabled, and it has not been revoked individually. The query always starts after the call, so its result
   * reflects everything that any process has committed before the call.
   */
  readonly isLive: BatchedLookup<string, true>;
  /** Whether the client has an authorization for the identity that has neither ended nor expired. */
  hasLive(identityId: string, clientId: string): Promise<boolean>;
}

export function createAuthorizationRepository(reads: Reads): AuthorizationRepository {
  return {
    async find(id) {
      const [found] = await reads.select().from(authorizations).where(eq(authorizations.id, id));
      return found;
    },
    isLive: batched({ load: (jtis: readonly string[]) => liveTokens(reads, jtis) }),
    async hasLive(identityId, clientId) {
      const [found] = await reads
        .select({ id: authorizations.id })
        .from(authorizations)
        .where(
          sql`${authorizations.identityId} = ${identityId} and ${authorizations.clientId} = ${clientId}
            and ${authorizations.revokedAt} is null and ${authorizations.expiresAt} > now()`,
        )
        .limit(1);
      return found !== undefined;
    },
  };
}

/** The positions in the list of the jtis that are live. In one row: many rows take the driver several times as long. */
const livePlaces = selection({
  places: computed(listOf(integer), sql`coalesce(json_agg(requested.place), '[]')`),
});

const selectLive = prepared(["jtis"], ({ jtis }) => {
  const authorization = names(authorizations, "a");
  const client = names(clients, "c");
  const revoked = names(revokedAccessTokens, "r");
  return sql`
    select ${livePlaces}
    from unnest(${jtis}::text[]) with ordinality as requested (value, place)
    join ${authorizations} a on ${authorization.id} = left(requested.value, ${authorizationIdLength}::int)::uuid
      and ${authorization.revokedAt} is null
    join ${clients} c on ${client.clientId} = ${authorization.clientId} and ${client.disabledAt} is null
    where not exists (select from ${revokedAccessTokens} r where ${revoked.jti} = requested.value)`;
});

async function liveTokens(reads: Reads, jtis: readonly string[]): Promise<Map<string, true>> {
  const [found] = await rows(reads, livePlaces, selectLive({ jtis: arrayLiteral(jtis) }));
  const live = new Map<string, true>();
  for (const place of found?.places ?? []) {
    const jti = jtis[place - 1];
    if (jti === undefined) throw new Error(`The database returned place ${place} of ${jtis.length}`);
    live.set(jti, true);
  }
  return live;
}

/** The new values of a rotation. */
interface Rotation {
  readonly refreshHash: Buffer;
  readonly superseded: Authorization["superseded"];
  readonly expiresAt: string;
  readonly accessExpiresAt: string;
  readonly now: Date;
}

const updateRotated = prepared(
  ["id", "presentedHash", "refreshHash", "superseded", "expiresAt", "accessExpiresAt", "now"],
  (parameter) => {
    const { id, identityId, clientId, ...set } = names(authorizations);
    const now = sql`${parameter.now}::timestamptz`;
    return sql`
      with rotated as (
        update ${authorizations}
        set ${set.refreshHash} = decode(${parameter.refreshHash}, 'hex'),
          ${set.superseded} = ${parameter.superseded}::text::jsonb,
          ${set.expiresAt} = ${parameter.expiresAt}::timestamptz,
          ${set.accessExpiresAt} = ${parameter.accessExpiresAt}::timestamptz
        where (${authorizations.id} = ${parameter.id} and ${authorizations.refreshHash} = ${parameter.presentedHash}
          and ${set.revokedAt} is null and ${set.expiresAt} > ${now})
        returning ${id}, ${identityId}, ${clientId}
      )
      ${recordEvent(
        AuthEvents.authorizationRefreshed,
        { identityId, authorizationId: id, clientId },
        now,
        sql`from rotated`,
      )}`;
  },
);

/**
 * Replaces the refresh token and writes the event if, and only if, the refresh token is still the one in
 * `authorization` and the authorization is active: of n concurrent calls, one succeeds.
 * @returns whether this call replaced the token
 */
export async function rotate(
  db: Database,
  authorization: Authorization,
  rotation: Rotation,
): Promise<boolean> {
  const rotated = await rowCount(
    db,
    updateRotated({
      id: authorization.id,
      presentedHash: authorization.refreshHash,
      refreshHash: rotation.refreshHash.toString("hex"),
      superseded: JSON.stringify(rotation.superseded),
      expiresAt: rotation.expiresAt,
      accessExpiresAt: rotation.accessExpiresAt,
      now: rotation.now.toISOString(),
    }),
  );
  return rotated === 1;
}
