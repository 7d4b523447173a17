/**
 * Firebase Cloud Messaging, HTTP v1. Owns the form of its messages and the meaning of its answers. Requests
 * go straight to FCM: the official SDK fixes its host and does not tell `Retry-After`.
 */
import type { Clock } from "../../../platform/base/clock.ts";
import type { FcmSettings } from "../../provider-settings.ts";
import { fittingJson } from "../fitting-text.ts";
import {
  codeIn,
  items,
  jsonOf,
  member,
  ofNoResponse,
  ofServerFailure,
  quotaMs,
  reasonOf,
  retryAfterMs,
  sent,
} from "../outcomes.ts";
import type { NotificationContent, Outcome, PushProvider, Recipient, Send } from "../provider.ts";
import type { ExchangeResult, RawHeaders } from "../transport/http2-exchange.ts";
import { Http2Pool } from "../transport/http2-pool.ts";
import { InFlight } from "../transport/in-flight.ts";
import { GoogleAccess } from "./google-access.ts";

/** FCM allows 100 streams on a connection, and 10,000 messages a second of 80 ms each need 800. */
const connections = { maxSessions: 8, maxStreams: 100 };
/** Bytes of a message, here without its token. */
const maxPayloadBytes = 4096;
/** Seconds: four weeks. */
const maxTtl = 2_419_200;

/** So many first answers that all say SENDER_ID_MISMATCH mean that the credentials are of another project. */
const mismatchesOfProject = 10;

/** What a chunk of messages has in common: the request's body around token and message id. */
interface Chunk {
  readonly beforeToken: string;
  readonly beforeMessageId: string;
  readonly end: string;
}

export class FcmProvider implements PushProvider {
  readonly name = "fcm";
  readonly isOneService = true;
  readonly maxInFlight = connections.maxSessions * connections.maxStreams;
  readonly #clock: Clock;
  /** SENDER_ID_MISMATCH answers before any other one; undefined: there was another one. */
  #firstMismatches: number | undefined = 0;
  readonly #inFlight = new InFlight();
  readonly #pool: Http2Pool;
  readonly #oauthPool: Http2Pool;
  readonly #access: GoogleAccess;
  readonly #target: RawHeaders;
  #headers: { readonly token: string; readonly all: RawHeaders } = { token: "", all: [] };

  constructor({ endpoint, account }: FcmSettings, clock: Clock) {
    this.#clock = clock;
    this.#pool = new Http2Pool({ origin: endpoint, ...connections });
    const { origin } = new URL(account.tokenUri);
    this.#oauthPool = new Http2Pool({ origin, maxSessions: 1, maxStreams: 1, idleMs: 30_000 });
    this.#access = new GoogleAccess(account, this.#oauthPool, clock);
    const { protocol, host } = new URL(endpoint);
    this.#target = [
      ...[":method", "POST", ":scheme", protocol.slice(0, -1), ":authority", host],
      ...[":path", `/v1/projects/${encodeURIComponent(account.projectId)}/messages:send`],
      ...["content-type", "application/json"],
    ];
  }

  tokenProblem(token: string): string | undefined {
    return /^[\w:.~+/=%-]{1,4096}$/.test(token)
      ? undefined
      : "must be an FCM registration token: 1 to 4096 characters, letters, digits and -_:.~+/=%";
  }

  prepare(content: NotificationContent): Send {
    const chunk = this.#chunkOf(content);
    return this.#inFlight.count((recipient) => this.#send(chunk, recipient));
  }

  #chunkOf(content: NotificationContent): Chunk {
    const seconds = Math.ceil((content.expiresAt - this.#clock.now()) / 1000);
    const ttl = Math.min(Math.max(seconds, 0), maxTtl);
    const ids = `"notificationId":${JSON.stringify(content.notificationId)},"messageId":"`;
    const beforeMessageId = `,"data":{${ids}`;
    // A UUID takes the place of the message id when bytes are counted.
    const room = maxPayloadBytes - Buffer.byteLength(beforeMessageId) - 36 - '{"message":{"token":""'.length;
    const rest = fittingJson(content.message, room, (message) => messageOf({ ...content, message }, ttl));
    return { beforeToken: '{"message":{"token":', beforeMessageId, end: `"},${rest.slice(1)}}` };
  }

  async #send(chunk: Chunk, { token, messageId }: Recipient): Promise<Outcome> {
    const body = chunk.beforeToken + JSON.stringify(token) + chunk.beforeMessageId + messageId + chunk.end;
    let access = this.#access.token();
    if (access instanceof Promise) access = await access;
    if ("outcome" in access) return access.outcome;
    let reply = await this.#pool.request(this.#headersWith(access.token), body);
    if (reply.answered && reply.status === 401) {
      access = await this.#access.renew(access.token);
      if ("outcome" in access) return access.outcome;
      reply = await this.#pool.request(this.#headersWith(access.token), body);
    }
    return this.#outcomeOf(reply);
  }

  /** One array for all requests with a token. */
  #headersWith(token: string): RawHeaders {
    if (this.#headers.token !== token) {
      this.#headers = { token, all: [...this.#target, "authorization", `Bearer ${token}`] };
    }
    return this.#headers.all;
  }

  /**
   * What FCM's answer means. 401 is a second one, with a new token. 403 and a 404 without UNREGISTERED are
   * about the project; only where FCM names the token, it is dead. A token of another project's is one that
   * a stranger registered, which must not stop everybody's notifications; unless there are no others.
   */
  #outcomeOf(reply: ExchangeResult): Outcome {
    if (!reply.answered) return ofNoResponse(reply);
    const { status } = reply;
    // Once the status is there, FCM has the message, even if the connection breaks before the body's end.
    if (status === 200) {
      this.#firstMismatches = undefined;
      return sent;
    }
    const error = member(jsonOf(reply), "error");
    const details = items(member(error, "details"));
    const errorCode = details.map((detail) => codeIn(member(detail, "errorCode"))).find(Boolean);
    const reason = reasonOf(status, errorCode ?? codeIn(member(error, "status")));
    if (errorCode === "SENDER_ID_MISMATCH") return { kind: this.#ofMismatch(), reason };
    this.#firstMismatches = undefined;
    if (status === 429) {
      return { kind: "unavailable", afterMs: retryAfterMs(reply, this.#clock) ?? quotaMs, reason };
    }
    if (status === 401 || status === 403) return { kind: "refused", reason };
    if (status === 404) return { kind: errorCode === "UNREGISTERED" ? "dead" : "refused", reason };
    if (status >= 500) return ofServerFailure(reply, this.#clock, errorCode);
    const fields = details.flatMap((detail) => items(member(detail, "fieldViolations")));
    const namesToken = fields.some((violation) => member(violation, "field") === "message.token");
    return { kind: status === 400 && namesToken ? "dead" : "failed", reason };
  }

  #ofMismatch(): "failed" | "refused" {
    if (this.#firstMismatches === undefined) return "failed";
    this.#firstMismatches += 1;
    return this.#firstMismatches < mismatchesOfProject ? "failed" : "refused";
  }

  async close(): Promise<void> {
    await this.#inFlight.ended();
    await this.#pool.close();
    await this.#oauthPool.close();
  }
}

/**
 * A message without token and data. Repeats collapse by Android's tag, the web's tag and APNs' collapse id;
 * not by FCM's `collapse_key`, which is throttled.
 */
function messageOf(content: NotificationContent, ttl: number): string {
  const { notificationId, title, message, imageUrl, expiresAt } = content;
  const image = imageUrl === undefined ? {} : { image: imageUrl };
  return JSON.stringify({
    notification: { title, body: message, ...image },
    android: { ttl: `${ttl}s`, priority: "high", notification: { tag: notificationId, ...image } },
    apns: {
      headers: {
        "apns-collapse-id": notificationId,
        "apns-expiration": String(Math.floor(expiresAt / 1000)),
        "apns-priority": "10",
      },
      ...(imageUrl !== undefined && {
        payload: { aps: { "mutable-content": 1 } },
        fcm_options: image,
      }),
    },
    webpush: { headers: { TTL: String(ttl) }, notification: { tag: notificationId, ...image } },
  });
}
