/** Firebase Cloud Messaging, HTTP v1: its messages and the meaning of its responses. */
import type { Clock } from "../../../platform/base/clock.ts";
import type { Connect, Fields, RequestHead } from "../../../platform/http2/connection.ts";
import type { ExchangeResult, PeerResponse } from "../../../platform/http2/exchange.ts";
import { Http2Pool } from "../../../platform/http2/pool.ts";
import type { FcmSettings } from "../../provider-settings.ts";
import {
  codeIn,
  isSuccess,
  items,
  jsonOf,
  member,
  noResponseOutcome,
  notForBrowsers,
  reasonOf,
  refusedOutcome,
  sent,
  serverFailureOutcome,
  throttledOutcome,
  whole,
} from "../outcomes.ts";
import type {
  KeptToken,
  NotificationContent,
  Outcome,
  PayloadSize,
  PushProvider,
  Recipient,
  Send,
} from "../provider.ts";
import { applicationDefaultTokens } from "./application-default-tokens.ts";
import { type FcmMessage, fcmMessage } from "./fcm-message.ts";
import { GoogleAccess } from "./google-access.ts";
import { ServiceAccountTokens } from "./service-account-tokens.ts";

/** FCM allows 100 streams on a connection; 10,000 messages a second that take 80 ms each need 800 streams. */
const connections = { maxSessions: 8, maxStreams: 100 };

/** The message of a 400 about the token that has no field violations. */
const badTokenMessage = "The registration token is not a valid FCM registration token";

/** The message of the self-test. FCM only validates it, and its topic has no subscribers, so it is sent to nobody. */
const selfTestBody = JSON.stringify({
  validate_only: true,
  message: { topic: "gatepost-self-test", notification: { title: "Self-test" } },
});

export class FcmProvider implements PushProvider {
  readonly name = "fcm";
  readonly maxInFlight = connections.maxSessions * connections.maxStreams;
  readonly #clock: Clock;
  readonly #pool: Http2Pool;
  readonly #access: GoogleAccess;
  readonly #path: string;
  readonly #target: Fields;
  #head: { readonly token: string; readonly head: RequestHead } | undefined;

  constructor({ endpoint, account }: FcmSettings, clock: Clock, connect: Connect) {
    this.#clock = clock;
    this.#pool = new Http2Pool({ connect, origin: endpoint, ...connections });
    const source =
      "privateKey" in account
        ? new ServiceAccountTokens(account, clock, connect)
        : applicationDefaultTokens(account.projectId);
    this.#access = new GoogleAccess(source, clock);
    const { protocol, host } = new URL(endpoint);
    this.#path = `/v1/projects/${encodeURIComponent(account.projectId)}/messages:send`;
    this.#target = [
      ...[":method", "POST", ":scheme", protocol.slice(0, -1), ":authority", host],
      ...["content-type", "application/json"],
    ];
  }

  tokenProblem(token: string): string | undefined {
    return /^[\w:.~+/=%-]{1,4096}$/.test(token)
      ? undefined
      : "must be an FCM registration token: 1 to 4096 characters, letters, digits and -_:.~+/=%";
  }

  /** What comes before the colon is the id of the app's installation (Firebase): it stays when the token changes. */
  deviceOf(token: string): KeptToken {
    const installation = /^[^:]+:/.exec(token)?.[0];
    return { token, identity: token, ...(installation !== undefined && { installation }) };
  }

  payloadSize(content: NotificationContent): PayloadSize {
    return fcmMessage(content, this.#clock.now()).size;
  }

  prepare(content: NotificationContent): Send {
    const message = fcmMessage(content, this.#clock.now());
    const send: Send = (recipient) => this.#send(message, recipient);
    return content.silent
      ? async (recipient) => (recipient.platform === "web" ? notForBrowsers : send(recipient))
      : send;
  }

  selfTest(): Promise<Outcome> {
    return this.#request(selfTestBody);
  }

  #send({ beforeToken, beforeMessageId, end }: FcmMessage, to: Recipient): Promise<Outcome> {
    return this.#request(beforeToken + JSON.stringify(to.token) + beforeMessageId + to.messageId + end);
  }

  async #request(body: string): Promise<Outcome> {
    let access = this.#access.token();
    if (access instanceof Promise) access = await access;
    if ("outcome" in access) return access.outcome;
    const first = whole(await this.#pool.request(this.#headWith(access.token), body));
    // A 401 with an error code of FCM is not about our access token.
    if (!first.responded || first.status !== 401 || errorOf(first).errorCode !== undefined) {
      return this.#outcomeOf(first);
    }
    access = await this.#access.renew(access.token);
    if ("outcome" in access) return access.outcome;
    return this.#outcomeOf(whole(await this.#pool.request(this.#headWith(access.token), body)));
  }

  /** The head of a request: one for all requests with the same access token. */
  #headWith(token: string): RequestHead {
    if (this.#head?.token !== token) {
      const shared = [...this.#target, "authorization", `Bearer ${token}`];
      this.#head = { token, head: { path: this.#path, shared } };
    }
    return this.#head.head;
  }

  /**
   * The outcome of FCM's response. A token is dead only if FCM names it. THIRD_PARTY_AUTH_ERROR: the project lacks the
   * APNs or Web Push key. Other 401s (after a new access token), 403s, and 404s without UNREGISTERED are about our
   * credentials or project.
   */
  #outcomeOf(response: ExchangeResult): Outcome {
    if (!response.responded) return noResponseOutcome(response);
    const { status } = response;
    // The status alone shows that FCM has accepted the message, even if the connection breaks before the body's end.
    if (isSuccess(status)) return sent;
    const { errorCode, reason, namesToken } = errorOf(response);
    if (errorCode === "THIRD_PARTY_AUTH_ERROR") return { kind: "blocked", reason };
    if (errorCode === "SENDER_ID_MISMATCH") return { kind: "foreign", reason };
    if (status === 429) return throttledOutcome(response, this.#clock, reason);
    if (status === 404 && errorCode === "UNREGISTERED") return { kind: "dead", reason };
    if (status === 401 || status === 403 || status === 404)
      return refusedOutcome(response, this.#clock, reason);
    if (status >= 500) return serverFailureOutcome(response, this.#clock, errorCode);
    return { kind: status === 400 && namesToken ? "dead" : "failed", reason };
  }

  async close(): Promise<void> {
    await this.#pool.close();
    await this.#access.close();
  }
}

interface FcmError {
  /** FCM's own code; undefined if the error does not come from FCM but from a gateway before it. */
  readonly errorCode: string | undefined;
  readonly reason: string;
  /** Whether the request fails because of its token. */
  readonly namesToken: boolean;
}

function errorOf(response: PeerResponse): FcmError {
  const error = member(jsonOf(response), "error");
  const details = items(member(error, "details"));
  const errorCode = details.map((detail) => codeIn(member(detail, "errorCode"))).find(Boolean);
  const code = errorCode ?? codeIn(member(error, "status"));
  const reason = reasonOf(response.status, code);
  const fields = details.flatMap((detail) => items(member(detail, "fieldViolations")));
  // FCM names the token by its field or, where it names no field, in these words alone.
  const namesToken =
    fields.some((violation) => member(violation, "field") === "message.token") ||
    (fields.length === 0 && code === "INVALID_ARGUMENT" && member(error, "message") === badTokenMessage);
  return { errorCode, reason, namesToken };
}
