/** The Apple Push Notification service. Owns the form of its requests and the meaning of its answers. */
import { sensitiveHeaders } from "node:http2";
import type { Clock } from "../../../platform/base/clock.ts";
import type { ApnsSettings } from "../../provider-settings.ts";
import { fittingJson } from "../fitting-text.ts";
import {
  codeIn,
  jsonOf,
  member,
  ofNoResponse,
  ofServerFailure,
  quotaMs,
  reasonOf,
  retryAfterMs,
  retryMs,
  sent,
} from "../outcomes.ts";
import type { NotificationContent, Outcome, PushProvider, Recipient, Send } from "../provider.ts";
import type { ExchangeResult, RawHeaders } from "../transport/http2-exchange.ts";
import { Http2Pool } from "../transport/http2-pool.ts";
import { InFlight } from "../transport/in-flight.ts";
import { ApnsToken } from "./apns-token.ts";

/** APNs allows one stream until the first push has succeeded, and then a thousand or so. */
const connections = { maxSessions: 4, maxStreams: 500 };
const maxPayloadBytes = 4096;
const tokenPattern = /^[0-9a-fA-F]{64,200}$/;

/** What a chunk of messages has in common. */
interface Chunk {
  readonly body: Buffer;
  readonly headers: RawHeaders;
}

export class ApnsProvider implements PushProvider {
  readonly name = "apns";
  readonly isOneService = true;
  readonly maxInFlight = 1000;
  readonly #clock: Clock;
  readonly #inFlight = new InFlight();
  readonly #pool: Http2Pool;
  readonly #token: ApnsToken;
  readonly #target: RawHeaders;
  readonly #topic: string;

  constructor(settings: ApnsSettings, clock: Clock) {
    const { endpoint, topic } = settings;
    this.#clock = clock;
    // A server that shuts down says so with 503.
    this.#pool = new Http2Pool({ origin: endpoint, ...connections, reconnectOn: 503 });
    this.#token = new ApnsToken(settings, clock);
    this.#topic = topic;
    const { protocol, host } = new URL(endpoint);
    this.#target = [":method", "POST", ":scheme", protocol.slice(0, -1), ":authority", host];
  }

  tokenProblem(token: string): string | undefined {
    return tokenPattern.test(token)
      ? undefined
      : "must be an APNs device token: 64 to 200 hexadecimal digits";
  }

  prepare(content: NotificationContent): Send {
    const { notificationId, message, expiresAt } = content;
    const write = (text: string): string => bodyOf({ ...content, message: text });
    const chunk: Chunk = {
      body: Buffer.from(fittingJson(message, maxPayloadBytes, write)),
      headers: [
        ...["apns-topic", this.#topic, "apns-push-type", "alert", "apns-priority", "10"],
        // 0 would mean one attempt, without storing it.
        ...["apns-expiration", String(Math.max(1, Math.floor(expiresAt / 1000)))],
        // Repeats collapse on the device.
        ...["apns-collapse-id", notificationId],
      ],
    };
    return this.#inFlight.count((recipient) => this.#send(chunk, recipient));
  }

  async #send(chunk: Chunk, recipient: Recipient): Promise<Outcome> {
    // The token becomes part of a path.
    if (!tokenPattern.test(recipient.token)) return { kind: "failed", reason: "not a device token" };
    const jwt = await this.#token.jwt();
    const reply = await this.#request(chunk, recipient, jwt);
    const error = reply.answered && reply.status !== 200 ? jsonOf(reply) : undefined;
    if (!reply.answered || reply.status !== 403 || member(error, "reason") !== "ExpiredProviderToken") {
      return this.#outcomeOf(reply, error);
    }
    const renewed = await this.#token.renew(jwt);
    if (renewed === undefined) return this.#outcomeOf(reply, error);
    const second = await this.#request(chunk, recipient, renewed);
    return this.#outcomeOf(second, second.answered && second.status !== 200 ? jsonOf(second) : undefined);
  }

  #request(chunk: Chunk, { token, messageId }: Recipient, jwt: string): Promise<ExchangeResult> {
    const headers = [
      ...this.#target,
      ...[":path", `/3/device/${token}`, "authorization", `bearer ${jwt}`],
      ...chunk.headers,
      ...["apns-id", messageId],
    ];
    // No other request has this id: it must not drive the JWT out of the table of header compression.
    Object.assign(headers, { [sensitiveHeaders]: ["apns-id"] });
    return this.#pool.request(headers, chunk.body);
  }

  /** What APNs' answer means. Only a token that it names as bad or gone is dead. */
  #outcomeOf(reply: ExchangeResult, error: unknown): Outcome {
    if (!reply.answered) return ofNoResponse(reply);
    const { status } = reply;
    if (status === 200) return sent;
    const code = codeIn(member(error, "reason"));
    const reason = reasonOf(status, code);
    if (status === 400 && code === "BadDeviceToken") return { kind: "dead", reason };
    if (status === 410 && (code === "Unregistered" || code === "ExpiredToken")) {
      const asOf = member(error, "timestamp");
      return { kind: "dead", reason, ...(typeof asOf === "number" && Number.isFinite(asOf) && { asOf }) };
    }
    if (status === 403) return { kind: "refused", reason };
    if (status === 429) {
      const afterMs = retryAfterMs(reply, this.#clock);
      // Too many to this device, unless it is said that we renew our own token too often.
      if (code !== "TooManyProviderTokenUpdates")
        return { kind: "retry", afterMs: afterMs ?? retryMs, reason };
      return { kind: "unavailable", afterMs: afterMs ?? quotaMs, reason };
    }
    return status >= 500 ? ofServerFailure(reply, this.#clock, code) : { kind: "failed", reason };
  }

  async close(): Promise<void> {
    await this.#inFlight.ended();
    await this.#pool.close();
  }
}

function bodyOf({ notificationId, title, message, imageUrl }: NotificationContent): string {
  return JSON.stringify({
    // An extension of the app may then fetch the image.
    aps: { alert: { title, body: message }, ...(imageUrl !== undefined && { "mutable-content": 1 }) },
    notificationId,
    imageUrl,
  });
}
