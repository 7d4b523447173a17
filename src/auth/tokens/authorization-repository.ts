import { and, eq, sql } from "drizzle-orm";
import { type BatchedLookup, batched } from "../../platform/database/batched-lookup.ts";
import { arrayLiteral, type Database, rows } from "../../platform/database/database.ts";
import { AuthEvents, recordEvent } from "../events.ts";
import { authorizations } from "../schema.ts";
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
   * enabled, and it has not been revoked by itself. Must be read from the database after it was asked, on
   * the connection's newest state: what another process has committed before is seen.
   */
  readonly isLive: BatchedLookup<string, true>;
}

export function createAuthorizationRepository(db: Database): AuthorizationRepository {
  return {
    async find(id) {
      const [found] = await db.select().from(authorizations).where(eq(authorizations.id, id));
      return found;
    },
    isLive: batched({ load: (jtis: readonly string[]) => liveTokens(db, jtis) }),
  };
}

async function liveTokens(db: Database, jtis: readonly string[]): Promise<Map<string, true>> {
  const [found] = await rows<{ places: number[] }>(
    db,
    // In one row, and not the jtis again: the driver takes several times as long over a row for each of them.
    sql`
      select coalesce(json_agg(token.place), '[]') as places
      from unnest(${arrayLiteral(jtis)}::text[]) with ordinality as token (jti, place)
      join auth.authorizations a on a.id = left(token.jti, ${authorizationIdLength}::int)::uuid and a.revoked_at is null
      join auth.clients c on c.client_id = a.client_id and c.disabled_at is null
      where not exists (select from auth.revoked_access_tokens r where r.jti = token.jti)`,
  );
  const live = new Map<string, true>();
  for (const place of found?.places ?? []) {
    const jti = jtis[place - 1];
    if (jti === undefined) throw new Error(`the database answered place ${place} of ${jtis.length}`);
    live.set(jti, true);
  }
  return live;
}

/** What a rotation changes. */
interface Rotation {
  readonly refreshHash: Buffer;
  readonly superseded: Authorization["superseded"];
  readonly expiresAt: string;
  readonly accessExpiresAt: string;
  readonly now: Date;
}

/**
 * Must replace the refresh token and write the event if, and only if, the token in the database is still the
 * one that `authorization` was read with and the authorization is active: of n at once, one succeeds.
 * @returns whether this call did it
 */
export async function rotate(
  db: Database,
  authorization: Authorization,
  rotation: Rotation,
): Promise<boolean> {
  const at = rotation.now.toISOString();
  const condition = and(
    eq(authorizations.id, authorization.id),
    eq(authorizations.refreshHash, authorization.refreshHash),
    sql`revoked_at is null and expires_at > ${at}::timestamptz`,
  );
  const rotated = await rows(
    db,
    sql`
      with rotated as (
        update auth.authorizations
        set refresh_hash = decode(${rotation.refreshHash.toString("hex")}, 'hex'),
          superseded = ${JSON.stringify(rotation.superseded)}::text::jsonb,
          expires_at = ${rotation.expiresAt}::timestamptz,
          access_expires_at = ${rotation.accessExpiresAt}::timestamptz
        where ${condition}
        returning id, identity_id, client_id
      )
      ${recordEvent(
        AuthEvents.authorizationRefreshed,
        { identityId: sql`identity_id`, authorizationId: sql`id`, clientId: sql`client_id` },
        rotation.now,
        sql`from rotated`,
      )}`,
  );
  return rotated.length === 1;
}
