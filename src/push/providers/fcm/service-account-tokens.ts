/** Access tokens of Google for a service account, by assertions that its key has signed (RFC 7523 section 2.1). */
import { createPrivateKey, type KeyObject } from "node:crypto";
import { SignJWT } from "jose";
import { type Clock, unixSeconds } from "../../../platform/base/clock.ts";
import type { Connect } from "../../../platform/http2/connection.ts";
import type { ExchangeResult } from "../../../platform/http2/exchange.ts";
import { Http2Pool } from "../../../platform/http2/pool.ts";
import type { ServiceAccount } from "../../provider-settings.ts";
import {
  codeIn,
  jsonOf,
  member,
  noResponseOutcome,
  quotaMs,
  reasonOf,
  refusedOutcome,
  retryAfterMs,
  serverFailureOutcome,
} from "../outcomes.ts";
import type { Outcome } from "../provider.ts";
import {
  type AccessToken,
  isAccessToken,
  messagingScope,
  type NoAccess,
  type TokenSource,
} from "./google-access.ts";

/** Seconds for which an assertion is valid; Google accepts at most an hour. */
const assertionSeconds = 3600;

export class ServiceAccountTokens implements TokenSource {
  readonly #account: ServiceAccount;
  readonly #key: KeyObject;
  readonly #pool: Http2Pool;
  readonly #clock: Clock;

  constructor(account: ServiceAccount, clock: Clock, connect: Connect) {
    this.#account = account;
    this.#key = createPrivateKey(account.privateKey);
    const { origin } = new URL(account.tokenUri);
    this.#pool = new Http2Pool({ connect, origin, maxSessions: 1, maxStreams: 1, idleMs: 30_000 });
    this.#clock = clock;
  }

  async fetch(): Promise<AccessToken | NoAccess> {
    const { protocol, host, pathname, search } = new URL(this.#account.tokenUri);
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
    return this.#read(response);
  }

  #assertion(): Promise<string> {
    const now = unixSeconds(this.#clock);
    const { privateKeyId, clientEmail, tokenUri } = this.#account;
    return new SignJWT({ scope: messagingScope })
      .setProtectedHeader({ alg: "RS256", typ: "JWT", ...(privateKeyId && { kid: privateKeyId }) })
      .setIssuer(clientEmail)
      .setAudience(tokenUri)
      .setIssuedAt(now)
      .setExpirationTime(now + assertionSeconds)
      .sign(this.#key);
  }

  /** RFC 6749 section 5: a token, or an error code. */
  #read(response: ExchangeResult): AccessToken | NoAccess {
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
      if (isAccessToken(token) && typeof seconds === "number") {
        return { token, expiresAt: this.#clock.now() + seconds * 1000 };
      }
      return { outcome: { kind: "unavailable", reason: "OAuth: 200 without a token" } };
    }
    const reason = `OAuth: ${reasonOf(status, codeIn(member(body, "error")))}`;
    return { outcome: refusedOutcome(response, this.#clock, reason) };
  }

  close(): Promise<void> {
    return this.#pool.close();
  }
}

/** Without an access token no message can be sent, so a temporary failure here makes the whole provider unavailable. */
function asAccessFailure(outcome: Outcome): Outcome {
  if (outcome.kind !== "retry" && outcome.kind !== "unavailable") return outcome;
  return { ...outcome, kind: "unavailable", reason: `OAuth: ${outcome.reason}` };
}
