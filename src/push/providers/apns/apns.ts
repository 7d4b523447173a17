/** The Apple Push Notification service: its requests and the meaning of its responses. */
import type { Clock } from "../../../platform/base/clock.ts";
import type { Connect, Fields } from "../../../platform/http2/connection.ts";
import type { ExchangeResult } from "../../../platform/http2/exchange.ts";
import { Http2Pool } from "../../../platform/http2/pool.ts";
import type { ApnsSettings } from "../../provider-settings.ts";
import { apnsCollapseId, apnsPriority, apsOf } from "../aps.ts";
import { fitted, fittingJson } from "../content.ts";
import {
  codeIn,
  isSuccess,
  jsonOf,
  member,
  noResponseOutcome,
  reasonOf,
  refusedOutcome,
  retryAfterMs,
  retryMs,
  sent,
  serverFailureOutcome,
  throttledOutcome,
  whole,
} from "../outcomes.ts";
import {
  dataOf,
  type KeptToken,
  type NotificationContent,
  type Outcome,
  type PayloadSize,
  type PushProvider,
  type Recipient,
  type Send,
} from "../provider.ts";
import { ApnsToken } from "./apns-token.ts";

/** APNs allows one stream until the first message has succeeded, and then about a thousand. */
const connections = { maxSessions: 4, maxStreams: 500 };
const maxPayloadBytes = 4096;
/** Milliseconds by which the clock of APNs may be ahead of ours. */
const maxClockSkewMs = 86_400_000;
/** Reasons that are about our topic, so they hold for all devices. */
const refusedTopic = new Set(["BadTopic", "TopicDisallowed", "MissingTopic"]);
const tokenPattern = /^[0-9a-fA-F]{64,200}$/;

/** What a message is: an alert, in a hurry or not, or silent. */
type Kind = "10" | "5" | "silent";

/** The fields in which the kinds differ. */
const kindFields: Readonly<Record<Kind, Fields>> = {
  10: ["apns-push-type", "alert", "apns-priority", "10"],
  5: ["apns-push-type", "alert", "apns-priority", "5"],
  silent: ["apns-push-type", "background", "apns-priority", "5"],
};

/** The parts that all messages of a chunk share. */
interface Chunk {
  readonly kind: Kind;
  readonly body: Buffer;
  readonly fields: Fields;
}

export class ApnsProvider implements PushProvider {
  readonly name = "apns";
  readonly maxInFlight = 1000;
  readonly #clock: Clock;
  readonly #pool: Http2Pool;
  readonly #token: ApnsToken;
  readonly #target: Fields;
  /** What becomes of a message that is sent once more after a 403. */
  #repeat: Promise<Outcome> | undefined;
  /** The fields that all messages of a kind share, with the provider token in them. */
  readonly #shared = new Map<Kind, { readonly jwt: string; readonly fields: Fields }>();

  constructor(settings: ApnsSettings, clock: Clock, connect: Connect) {
    const { endpoint, topic } = settings;
    this.#clock = clock;
    // A server that shuts down responds with 503. One that refuses our token with 403 may be the only one that does.
    this.#pool = new Http2Pool({ connect, origin: endpoint, ...connections, reconnectOn: [403, 503] });
    this.#token = new ApnsToken(settings, clock);
    const { protocol, host } = new URL(endpoint);
    this.#target = [
      ...[":method", "POST", ":scheme", protocol.slice(0, -1), ":authority", host],
      ...["apns-topic", topic],
    ];
  }

  tokenProblem(token: string): string | undefined {
    return tokenPattern.test(token)
      ? undefined
      : "must be an APNs device token: 64 to 200 hexadecimal digits";
  }

  /** Hexadecimal digits are the same in both cases. */
  deviceOf(token: string): KeptToken {
    const digits = token.toLowerCase();
    return { token: digits, identity: digits };
  }

  payloadSize(content: NotificationContent): PayloadSize {
    return fitted(content, maxPayloadBytes, (shown) => Buffer.byteLength(bodyOf(shown)));
  }

  prepare(content: NotificationContent): Send {
    const chunk: Chunk = {
      kind: content.silent ? "silent" : apnsPriority(content),
      body: Buffer.from(fittingJson(content, maxPayloadBytes, bodyOf)),
      fields: [
        // 0 would mean that APNs tries once and does not store the message.
        ...["apns-expiration", String(Math.max(1, Math.floor(content.expiresAt / 1000)))],
        // A repeat replaces the first message on the device.
        ...["apns-collapse-id", apnsCollapseId(content)],
      ],
    };
    return (recipient) => this.#send(chunk, recipient);
  }

  async #send(chunk: Chunk, recipient: Recipient): Promise<Outcome> {
    // The token becomes part of the path, so it must match the pattern.
    if (!tokenPattern.test(recipient.token)) return { kind: "failed", reason: "not a device token" };
    const jwt = await this.#token.jwt();
    const response = await this.#request(chunk, recipient, jwt);
    if (!response.responded || response.status !== 403) return this.#outcomeOf(response);
    // All messages in flight may be refused at once. One of them shows for all whether that was a mistake.
    if (this.#repeat && (await this.#repeat).kind === "refused") return this.#outcomeOf(response);
    const repeat = this.#sendAgain(chunk, recipient, jwt);
    this.#repeat = repeat;
    return repeat.finally(() => {
      if (this.#repeat === repeat) this.#repeat = undefined;
    });
  }

  /** Sends a message once more that got a 403: over another connection, and with a new token if Apple allows one. */
  async #sendAgain(chunk: Chunk, recipient: Recipient, refused: string): Promise<Outcome> {
    return this.#outcomeOf(await this.#request(chunk, recipient, await this.#token.renew(refused)));
  }

  async #request(chunk: Chunk, { token, messageId }: Recipient, jwt: string): Promise<ExchangeResult> {
    const own = [...chunk.fields, "apns-id", messageId];
    const head = { path: `/3/device/${token}`, shared: this.#sharedWith(jwt, chunk.kind), own };
    return whole(await this.#pool.request(head, chunk.body));
  }

  /** One array for all messages of a kind with the same provider token. */
  #sharedWith(jwt: string, kind: Kind): Fields {
    const known = this.#shared.get(kind);
    if (known?.jwt === jwt) return known.fields;
    const fields = [...this.#target, ...kindFields[kind], "authorization", `bearer ${jwt}`];
    this.#shared.set(kind, { jwt, fields });
    return fields;
  }

  /**
   * The outcome of the response; a 403 is a second one. A token is dead only if APNs reports it bad or unregistered.
   */
  #outcomeOf(response: ExchangeResult): Outcome {
    if (!response.responded) return noResponseOutcome(response);
    const { status } = response;
    if (isSuccess(status)) return sent;
    const error = jsonOf(response);
    const code = codeIn(member(error, "reason"));
    const reason = reasonOf(status, code);
    if (status === 400 && code === "BadDeviceToken") return { kind: "dead", reason };
    if (status === 410 && (code === "Unregistered" || code === "ExpiredToken")) {
      const asOf = timeIn(member(error, "timestamp"), this.#clock);
      return { kind: "dead", reason, ...(asOf !== undefined && { asOf }) };
    }
    if (status === 403) {
      const isOfTime = code === "ExpiredProviderToken";
      return { ...refusedOutcome(response, this.#clock, reason, isOfTime), isConfirmed: true };
    }
    if (status === 400 && refusedTopic.has(code ?? "")) return { kind: "refused", reason };
    if (status === 400 && code === "DeviceTokenNotForTopic") return { kind: "foreign", reason };
    // About provider tokens that are renewed too often. Other codes are about too many messages to this device.
    if (code === "TooManyProviderTokenUpdates") return throttledOutcome(response, this.#clock, reason);
    if (status === 429) {
      return { kind: "retry", isOwn: true, afterMs: retryAfterMs(response, this.#clock) ?? retryMs, reason };
    }
    return status >= 500 ? serverFailureOutcome(response, this.#clock, code) : { kind: "failed", reason };
  }

  async close(): Promise<void> {
    await this.#pool.close();
  }
}

function bodyOf(content: NotificationContent): string {
  const { notificationId, title, message, imageUrl, silent } = content;
  const alert = silent ? undefined : { title, body: message };
  return JSON.stringify({
    aps: { alert, ...apsOf(content) },
    notificationId,
    imageUrl,
    data: dataOf(content),
  });
}

/** Milliseconds since the epoch; undefined if the value cannot be a time that has been. */
function timeIn(value: unknown, clock: Clock): number | undefined {
  if (typeof value !== "number" || !(value > 0 && value < clock.now() + maxClockSkewMs)) return undefined;
  return Math.trunc(value);
}
