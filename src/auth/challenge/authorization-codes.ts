/**
 * The codes with which challenges end, and which the token endpoint exchanges (RFC 6749 section 4.1.2). A code is 256
 * random bits, of which the database has a hash; the first refresh token is derived from it.
 */
import { hash } from "node:crypto";
import { type SQLWrapper, sql } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import { randomBytes, uuidv7 } from "../../platform/crypto/random.ts";
import type { Database } from "../../platform/database/database.ts";
import { listOf, names, nullable, text } from "../../platform/database/sql/readers.ts";
import { computed, rowCount, rows, selection } from "../../platform/database/sql/statements.ts";
import { challengeSessions } from "../codes-schema.ts";
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
  readonly phone: string;
  readonly scopes: readonly string[] | null;
  /** Null: nobody had the phone when it began. */
  readonly identityId: string | null;
  readonly identityGeneration: number;
  /** The authorization that the exchange makes, and its first refresh token. */
  readonly refreshToken: RefreshToken;
}

export interface AuthorizationCodes {
  /** A code for a session whose one-time code was right; the one before is void. Undefined once one was exchanged. */
  issue(sessionHash: Buffer): Promise<string | undefined>;
  /**
   * The challenge that has ended with the code; undefined for a code that is wrong, expired or void, and for another
   * client, key or verifier. Repeated, it is the same challenge, for a minute from the first time.
   */
  exchange(presented: PresentedCode): Promise<EndedChallenge | undefined>;
}

const { sessionHash, codeHash, codeExpiresAt, authorizationId, exchangedAt, ...fixed } =
  names(challengeSessions);

const later = (moment: SQLWrapper) => sql`${moment} + ${codeSeconds}::int * interval '1 second'`;
const hashOf = (text: string) => hash("sha256", text, "buffer");

const ended = selection({
  phone: fixed.phone,
  scopes: computed(nullable(listOf(text)), sql`to_json(${fixed.scopes})`),
  identityId: fixed.identityId,
  identityGeneration: fixed.identityGeneration,
  // A session that has the code has this, too.
  authorizationId: computed(text, sql`${authorizationId}`),
});

export function createAuthorizationCodes(db: Database, clock: Clock): AuthorizationCodes {
  return {
    async issue(endedSession) {
      const secret = randomBytes(32).toString("base64url");
      const code = prefix + secret;
      // One row has session and code: of an exchange at the same time, one statement sees what the other has done.
      const stored = await rowCount(
        db,
        sql`
        update ${challengeSessions} set ${codeHash} = ${hashOf(code)}, ${codeExpiresAt} = ${later(sql`now()`)},
          ${authorizationId} = ${uuidv7(clock.now())}::uuid
        where ${sessionHash} = ${endedSession} and ${exchangedAt} is null
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
        update ${challengeSessions} set ${exchangedAt} = coalesce(${exchangedAt}, now())
        where ${codeHash} = ${hashOf(code)} and ${fixed.clientId} = ${clientId}
          and ${fixed.keyThumbprint} = ${keyThumbprint} and ${fixed.codeChallenge} = ${codeChallenge}
          and now() < coalesce(${later(exchangedAt)}, ${codeExpiresAt})
        returning ${ended}`,
      );
      if (!challenge) return undefined;
      const { authorizationId: id, ...rest } = challenge;
      return { ...rest, refreshToken: derivedRefreshToken(id, Buffer.from(secret, "base64url")) };
    },
  };
}
