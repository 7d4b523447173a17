/**
 * The access token that FCM is sent: fetched when first needed, renewed before it expires, by one request at a time.
 */
import type { Clock } from "../../../platform/base/clock.ts";
import type { Outcome } from "../provider.ts";

/** The scope that an access token needs. */
export const messagingScope = "https://www.googleapis.com/auth/firebase.messaging";

/** Milliseconds before expiry at which a new token is fetched, while the old one is still used. */
const renewMs = 300_000;
/** Milliseconds before expiry from which a token is no longer used. */
const marginMs = 30_000;
/** Milliseconds for which a failure is cached, so that many messages do not cause as many token requests. */
const failureMs = 2_000;
/** Milliseconds after which a failure is not followed by a second request, as messages have waited for long enough. */
const secondMs = 5_000;

export interface AccessToken {
  readonly token: string;
  /** Milliseconds since the epoch. */
  readonly expiresAt: number;
}

/** The outcome of messages while there is no access token. */
export interface NoAccess {
  readonly outcome: Outcome;
}

type Access = Pick<AccessToken, "token"> | NoAccess;

/** A source of access tokens. */
export interface TokenSource {
  /** Fetches a new token. Rejects only if the credentials cannot be used at all. */
  fetch(): Promise<AccessToken | NoAccess>;
  close(): Promise<void>;
}

/** Whether the token can be sent in a header. */
export function isAccessToken(token: unknown): token is string {
  return typeof token === "string" && /^[\x21-\x7e]{1,8192}$/.test(token);
}

export class GoogleAccess {
  readonly #source: TokenSource;
  readonly #clock: Clock;
  #current: AccessToken | undefined;
  #failure: { readonly outcome: Outcome; readonly at: number } | undefined;
  #fetching: Promise<Access> | undefined;

  constructor(source: TokenSource, clock: Clock) {
    this.#source = source;
    this.#clock = clock;
  }

  /** The token; a promise only if it must be fetched. */
  token(): Access | Promise<Access> {
    const now = this.#clock.now();
    const current = this.#current;
    if (current === undefined || now >= current.expiresAt - marginMs) return this.#fetch();
    if (now >= current.expiresAt - renewMs) void this.#fetch();
    return current;
  }

  /** Replaces a token that FCM has rejected. */
  renew(refused: string): Access | Promise<Access> {
    if (this.#current?.token === refused) this.#current = undefined;
    return this.token();
  }

  #fetch(): Access | Promise<Access> {
    // Of a clock that was set back, nothing is known.
    const sinceMs = this.#clock.now() - (this.#failure?.at ?? 0);
    if (this.#failure && sinceMs >= 0 && sinceMs < failureMs) return { outcome: this.#failure.outcome };
    this.#fetching ??= this.#request()
      .catch((): Access => ({ outcome: { kind: "refused", reason: "OAuth: no assertion can be signed" } }))
      .finally(() => {
        this.#fetching = undefined;
      });
    return this.#fetching;
  }

  async #request(): Promise<Access> {
    const startedAt = this.#clock.now();
    let result = await this.#source.fetch();
    // All messages need the token, so no single response decides that there is none.
    if ("outcome" in result && this.#clock.now() - startedAt < secondMs) result = await this.#source.fetch();
    if ("outcome" in result) {
      this.#failure = { outcome: result.outcome, at: this.#clock.now() };
    } else {
      this.#failure = undefined;
      this.#current = result;
    }
    return result;
  }

  close(): Promise<void> {
    return this.#source.close();
  }
}
