/**
 * Access tokens of Google for a service account (RFC 7523). A token is fetched when it is first needed and renewed
 * before it expires, by one request at a time for all messages that wait for it.
 */
import { createPrivateKey, type KeyObject } from "node:crypto";
import { SignJWT } from "jose";
import { type Clock, unixSeconds } from "../../../platform/base/clock.ts";
import type { ServiceAccount } from "../../provider-settings.ts";
import {
  codeIn,
  jsonOf,
  member,
  noResponseOutcome,
  quotaMs,
  reasonOf,
  retryAfterMs,
  serverFailureOutcome,
} from "../outcomes.ts";
import type { Outcome } from "../provider.ts";
import type { ExchangeResult } from "../transport/http2-exchange.ts";
import type { Http2Pool } from "../transport/http2-pool.ts";

const scope = "https://www.googleapis.com/auth/firebase.messaging";
/** Seconds for which an assertion is valid; Google accepts at most an hour. */
const assertionSeconds = 3600;
/** Milliseconds before expiry at which a new token is fetched, while the old one is still used. */
const renewMs = 300_000;
/** Milliseconds before expiry from which a token is no longer used. */
const marginMs = 30_000;
/** Milliseconds for which a failure is cached, so that many messages do not cause as many token requests. */
const failureMs = 2_000;

interface AccessToken {
  readonly token: string;
  /** Milliseconds since the epoch. */
  readonly expiresAt: number;
}

/** An access token, or the outcome of messages while there is none. */
type Access = { readonly token: string } | { readonly outcome: Outcome };

export class GoogleAccess {
  readonly #account: ServiceAccount;
  readonly #key: KeyObject;
  readonly #pool: Http2Pool;
  readonly #clock: Clock;
  #current: AccessToken | undefined;
  #failure: { readonly outcome: Outcome; readonly until: number } | undefined;
  #fetching: Promise<Access> | undefined;

  /** @param pool of connections to the origin of the account's `token_uri` */
  constructor(account: ServiceAccount, pool: Http2Pool, clock: Clock) {
    this.#account = account;
    this.#key = createPrivateKey(account.privateKey);
    this.#pool = pool;
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
    if (this.#failure && this.#clock.now() < this.#failure.until) return { outcome: this.#failure.outcome };
    this.#fetching ??= this.#request()
      .catch((): Access => ({ outcome: { kind: "refused", reason: "OAuth: no assertion can be signed" } }))
      .finally(() => {
        this.#fetching = undefined;
      });
    return this.#fetching;
  }

  async #request(): Promise<Access> {
    const { tokenUri } = this.#account;
    const { protocol, host, pathname, search } = new URL(tokenUri);
    const response = await this.#pool.request(
      {
        path: pathname + search,
        shared: [
          ...[":method", "POST", ":scheme", protocol.slice(0, -1), ":authority", host],
          ...["content-type", "application/x-www-form-urlencoded"],
        ],
      },
      new URLSearchParams({
        grant_type: "urn:ietf:params:oauth:grant-type:jwt-bearer",
        assertion: await this.#assertion(),
      }).toString(),
    );
    const result = this.#read(response);
    if ("outcome" in result) {
      this.#failure = { outcome: result.outcome, until: this.#clock.now() + failureMs };
    } else {
      this.#failure = undefined;
      this.#current = result;
    }
    return result;
  }

  #assertion(): Promise<string> {
    const now = unixSeconds(this.#clock);
    const { privateKeyId, clientEmail, tokenUri } = this.#account;
    return new SignJWT({ scope })
      .setProtectedHeader({ alg: "RS256", typ: "JWT", ...(privateKeyId && { kid: privateKeyId }) })
      .setIssuer(clientEmail)
      .setAudience(tokenUri)
      .setIssuedAt(now)
      .setExpirationTime(now + assertionSeconds)
      .sign(this.#key);
  }

  /** RFC 6749 section 5: a token, or an error code. */
  #read(response: ExchangeResult): AccessToken | { readonly outcome: Outcome } {
    if (!response.responded) return { outcome: asAccessFailure(noResponseOutcome(response)) };
    const { status } = response;
    const body = jsonOf(response);
    if (status === 429) {
      const afterMs = retryAfterMs(response, this.#clock) ?? quotaMs;
      return { outcome: { kind: "unavailable", afterMs, reason: "OAuth: 429" } };
    }
    if (status >= 500) return { outcome: asAccessFailure(serverFailureOutcome(response, this.#clock)) };
    const [token, seconds] = [member(body, "access_token"), member(body, "expires_in")];
    if (status === 200) {
      if (typeof token === "string" && /^[\x21-\x7e]{1,8192}$/.test(token) && typeof seconds === "number") {
        return { token, expiresAt: this.#clock.now() + seconds * 1000 };
      }
      return { outcome: { kind: "unavailable", reason: "OAuth: 200 without a token" } };
    }
    const reason = `OAuth: ${reasonOf(status, codeIn(member(body, "error")))}`;
    return { outcome: { kind: "refused", reason } };
  }
}

/** Without an access token no message can be sent, so a temporary failure here makes the whole provider unavailable. */
function asAccessFailure(outcome: Outcome): Outcome {
  if (outcome.kind !== "retry" && outcome.kind !== "unavailable") return outcome;
  return { ...outcome, kind: "unavailable", reason: `OAuth: ${outcome.reason}` };
}
