/**
 * Access to Google's services by service account (RFC 7523). Owns the access token: fetched when it is first
 * needed, renewed before it expires, and by one request at a time, however many messages wait for it.
 */
import { createPrivateKey, type KeyObject } from "node:crypto";
import { SignJWT } from "jose";
import { type Clock, unixSeconds } from "../../../platform/base/clock.ts";
import type { ServiceAccount } from "../../provider-settings.ts";
import {
  codeIn,
  jsonOf,
  member,
  ofNoResponse,
  ofServerFailure,
  quotaMs,
  reasonOf,
  retryAfterMs,
} from "../outcomes.ts";
import type { Outcome } from "../provider.ts";
import type { ExchangeResult } from "../transport/http2-exchange.ts";
import type { Http2Pool } from "../transport/http2-pool.ts";

const scope = "https://www.googleapis.com/auth/firebase.messaging";
/** Seconds that an assertion is valid; Google takes at most an hour. */
const assertionSeconds = 3600;
/** Milliseconds before its expiry at which a new token is fetched, while the old one is used on. */
const renewMs = 300_000;
/** Milliseconds before its expiry from which on a token is not used. */
const marginMs = 30_000;
/** Milliseconds that a failure stands, so that a wave of messages is not a wave of requests for tokens. */
const failureMs = 2_000;

interface AccessToken {
  readonly token: string;
  /** Milliseconds since the epoch. */
  readonly expiresAt: number;
}

/** An access token, or what comes of messages while there is none. */
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

  /** The token; a promise only where it must be fetched. */
  token(): Access | Promise<Access> {
    const now = this.#clock.now();
    const current = this.#current;
    if (current === undefined || now >= current.expiresAt - marginMs) return this.#fetch();
    if (now >= current.expiresAt - renewMs) void this.#fetch();
    return current;
  }

  /** Another token than this one, which was not taken. */
  renew(refused: string): Access | Promise<Access> {
    if (this.#current?.token === refused) this.#current = undefined;
    return this.token();
  }

  #fetch(): Access | Promise<Access> {
    if (this.#failure && this.#clock.now() < this.#failure.until) return { outcome: this.#failure.outcome };
    this.#fetching ??= this.#ask()
      .catch((): Access => ({ outcome: { kind: "refused", reason: "OAuth: no assertion can be signed" } }))
      .finally(() => {
        this.#fetching = undefined;
      });
    return this.#fetching;
  }

  async #ask(): Promise<Access> {
    const { tokenUri } = this.#account;
    const { protocol, host, pathname, search } = new URL(tokenUri);
    const reply = await this.#pool.request(
      [
        ...[":method", "POST", ":scheme", protocol.slice(0, -1), ":authority", host],
        ...[":path", pathname + search, "content-type", "application/x-www-form-urlencoded"],
      ],
      new URLSearchParams({
        grant_type: "urn:ietf:params:oauth:grant-type:jwt-bearer",
        assertion: await this.#assertion(),
      }).toString(),
    );
    const result = this.#read(reply);
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
  #read(reply: ExchangeResult): AccessToken | { readonly outcome: Outcome } {
    if (!reply.answered) return { outcome: inWordsOfAccess(ofNoResponse(reply)) };
    const { status } = reply;
    const body = jsonOf(reply);
    if (status === 429) {
      const afterMs = retryAfterMs(reply, this.#clock) ?? quotaMs;
      return { outcome: { kind: "unavailable", afterMs, reason: "OAuth: 429" } };
    }
    if (status >= 500) return { outcome: inWordsOfAccess(ofServerFailure(reply, this.#clock)) };
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

/** Without a token nothing can be sent, so what would be one message's bad luck is everybody's. */
function inWordsOfAccess(outcome: Outcome): Outcome {
  if (outcome.kind !== "retry" && outcome.kind !== "unavailable") return outcome;
  return { ...outcome, kind: "unavailable", reason: `OAuth: ${outcome.reason}` };
}
