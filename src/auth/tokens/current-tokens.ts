/**
 * The refresh tokens that this process stored last, by their hashes. Whoever presents one of them is spared the
 * look-up; whether it may be exchanged is decided by the statement that rotates, as ever.
 */
import { hash, timingSafeEqual } from "node:crypto";
import { LRUCache } from "lru-cache";
import type { AsClient } from "../clients/as-client.ts";
import type { RefreshToken } from "./refresh-token.ts";

/** What an authorization is created with, and keeps. */
export interface AuthorizationFacts {
  readonly clientId: string;
  readonly identityId: string;
  readonly scopes: readonly string[];
  /** Whom the client acts for; undefined: for the user. */
  readonly asClient?: AsClient | undefined;
  /** Of the key that the tokens are bound to (RFC 7638, base64url); undefined: to none. */
  readonly keyThumbprint?: string | undefined;
}

interface Current {
  readonly digest: Buffer;
  readonly facts: AuthorizationFacts;
}

/** Some 5 MiB. */
const maxRemembered = 10_000;

/** Of all of the secret parts: a token with another family is another token. */
function digestOf({ family, rotating }: RefreshToken): Buffer {
  return hash("sha256", Buffer.concat([family, rotating]), "buffer");
}

export class CurrentTokens {
  readonly #current = new LRUCache<string, Current>({ max: maxRemembered });

  /** Remembers a token that the database has stored, in place of the one before it. */
  remember(token: RefreshToken, authorization: AuthorizationFacts): void {
    const { clientId, identityId, scopes, asClient, keyThumbprint } = authorization;
    const facts = { clientId, identityId, scopes, asClient, keyThumbprint };
    this.#current.set(token.authorizationId, { digest: digestOf(token), facts });
  }

  /** Finds the token, and forgets it: it can be exchanged once. Undefined if it is not one of those remembered. */
  take(token: RefreshToken): AuthorizationFacts | undefined {
    const current = this.#current.peek(token.authorizationId);
    if (!current || !timingSafeEqual(current.digest, digestOf(token))) return undefined;
    this.#current.delete(token.authorizationId);
    return current.facts;
  }
}
