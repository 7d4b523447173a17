/**
 * The codes with which challenges end, and which the token endpoint exchanges (RFC 6749 section 4.1.2). A code is 256
 * random bits, of which the database has a hash; the first refresh token is derived from it.
 */
import { hash } from "node:crypto";
import { eq, sql } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import { randomBytes, uuidv7 } from "../../platform/crypto/random.ts";
import type { Database } from "../../platform/database/database.ts";
import { listOf, names, nullable, text } from "../../platform/database/sql/readers.ts";
import {
  computed,
  ctid,
  isAmong,
  rowCount,
  rows,
  selection,
} from "../../platform/database/sql/statements.ts";
import { limit } from "../batches.ts";
import { sessionHashOf } from "../codes/sessions.ts";
import { challengeSessions } from "../codes-schema.ts";
import { authorizationCodes } from "../schema.ts";
import { derivedRefreshToken, type RefreshToken } from "../tokens/refresh-token.ts";

/** Seconds in which a code is exchanged, and in which its exchange may be repeated from then on. */
const codeSeconds = 60;

/** Identifies the code to people and to scanners for leaked secrets. */
const prefix = "gpc_";
const codePattern = /^gpc_([A-Za-z0-9_-]{43})$/;

/** What is presented with a code. */
interface PresentedCode {
  readonly code: string;
  /** RFC 7636 section 4.5. */
  readonly codeVerifier: string;
  readonly clientId: string;
  readonly keyThumbprint: string;
}

/** A challenge whose code is exchanged. */
export interface EndedChallenge {
  readonly sessionHash: Uint8Array;
  readonly phone: string;
  readonly scopes: readonly string[] | null;
  /** Null: nobody had the phone when it began. */
  readonly identityId: string | null;
  readonly identityGeneration: number;
  /** The authorization that the exchange makes, and its first refresh token. */
  readonly refreshToken: RefreshToken;
}

export interface AuthorizationCodes {
  /** The client that has begun a session; undefined if there is no such session. */
  clientOf(authSession: string): Promise<string | undefined>;
  /** A code for a session whose one-time code was right; the one before is void. Undefined once one was exchanged. */
  issue(sessionHash: Buffer): Promise<string | undefined>;
  /**
   * The challenge that has ended with the code; undefined for a code that is wrong, expired or void, and for another
   * client, key or verifier. Repeated, it is the same challenge, for a minute from the first time.
   */
  exchange(presented: PresentedCode): Promise<EndedChallenge | undefined>;
}

const session = names(challengeSessions, "s");
const issued = names(authorizationCodes, "c");
const { sessionHash: hashOfSession, exchangedAt } = names(challengeSessions);
const { sessionHash, codeHash, authorizationId, expiresAt } = names(authorizationCodes);

const now = sql`clock_timestamp()`;
const later = sql`${now} + ${codeSeconds}::int * interval '1 second'`;
const bytesOf = (bytes: Uint8Array) => sql`decode(${Buffer.from(bytes).toString("hex")}, 'hex')`;
const hashOf = (text: string) => hash("sha256", text, "buffer");

const ended = selection({
  sessionHash: session.sessionHash,
  phone: session.phone,
  scopes: computed(nullable(listOf(text)), sql`to_json(${session.scopes})`),
  identityId: session.identityId,
  identityGeneration: session.identityGeneration,
  authorizationId: issued.authorizationId,
});

export function createAuthorizationCodes(db: Database, clock: Clock): AuthorizationCodes {
  return {
    async clientOf(authSession) {
      const [found] = await db
        .select({ clientId: challengeSessions.clientId })
        .from(challengeSessions)
        .where(eq(challengeSessions.sessionHash, sessionHashOf(authSession)));
      return found?.clientId;
    },

    async issue(endedSession) {
      const secret = randomBytes(32).toString("base64url");
      const code = prefix + secret;
      // The lock keeps an exchange apart, whose code this one would void.
      const stored = await rowCount(
        db,
        sql`
        with session as (
          select ${hashOfSession} from ${challengeSessions}
          where ${hashOfSession} = ${bytesOf(endedSession)} and ${exchangedAt} is null for update
        )
        insert into ${authorizationCodes} (${sessionHash}, ${codeHash}, ${authorizationId}, ${expiresAt})
        select ${hashOfSession}, ${bytesOf(hashOf(code))}, ${uuidv7(clock.now())}::uuid, ${later} from session
        on conflict (${sessionHash}) do update set ${codeHash} = excluded.${codeHash},
          ${authorizationId} = excluded.${authorizationId}, ${expiresAt} = excluded.${expiresAt}
        returning 1 as one`,
      );
      return stored === 1 ? code : undefined;
    },

    async exchange({ code, codeVerifier, clientId, keyThumbprint }) {
      const [, secret] = codePattern.exec(code) ?? [];
      if (secret === undefined) return undefined;
      const codeChallenge = hashOf(codeVerifier).toString("base64url");
      const [challenge] = await rows(
        db,
        ended,
        sql`
        update ${challengeSessions} s set ${exchangedAt} = coalesce(${session.exchangedAt}, ${now})
        from ${authorizationCodes} c
        where ${issued.sessionHash} = ${session.sessionHash} and ${issued.codeHash} = ${bytesOf(hashOf(code))}
          and ${session.clientId} = ${clientId} and ${session.keyThumbprint} = ${keyThumbprint}
          and ${session.codeChallenge} = ${codeChallenge}
          and ${now} < coalesce(${session.exchangedAt} + ${codeSeconds}::int * interval '1 second', ${issued.expiresAt})
        returning ${ended}`,
      );
      if (!challenge) return undefined;
      const { authorizationId: id, ...rest } = challenge;
      return { ...rest, refreshToken: derivedRefreshToken(id, Buffer.from(secret, "base64url")) };
    },
  };
}

/** Removes the codes that no request may present any more. */
export const removeCodes = sql`
  delete from ${authorizationCodes} where ${isAmong(
    ctid,
    sql`select c.ctid from ${authorizationCodes} c
      where ${issued.expiresAt} < ${now} - interval '1 hour' ${limit} for update skip locked`,
  )} returning 1 as one`;
