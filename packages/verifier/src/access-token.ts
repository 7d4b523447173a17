/** A token that was found good: what it says, by the names of RFC 9068. */
import type { Members } from "./auth-server.ts";

export interface AccessToken {
  /** The id of the user; in a client's own token that of the client, as in `clientId` (RFC 9068 section 2.2). */
  readonly sub: string;
  /** The app that the token was issued to. */
  readonly clientId: string;
  readonly scopes: readonly string[];
  /** Unix time in seconds. */
  readonly exp: number;
  /** The token's claims, or the introspection's members. */
  readonly claims: Members;
}

/** Whose token it is; undefined if it is not good. @throws UnavailableError where that cannot be known */
export type Check = (token: string) => Promise<AccessToken | undefined>;

/** @returns undefined if a claim is missing, or if the token is bound to a key, which is not checked here (RFC 9449) */
export function accessTokenOf(claims: Members): AccessToken | undefined {
  const { sub, client_id: clientId, exp, scope = "", cnf } = claims;
  if (typeof sub !== "string" || typeof clientId !== "string" || typeof exp !== "number") return undefined;
  if (sub === "" || typeof scope !== "string" || cnf !== undefined) return undefined;
  return { sub, clientId, scopes: scope.split(" ").filter((one) => one !== ""), exp, claims };
}
