/** Web Push (RFC 8030): requests, the meaning of responses, and a pool of connections for each push service. */

import { createECDH } from "node:crypto";
import type { LookupFunction } from "node:net";
import ece from "http_ece";
import { LRUCache } from "lru-cache";
import type { Clock } from "../../../platform/base/clock.ts";
import { type Connect, noHttp2, type RequestHead } from "../../../platform/http2/connection.ts";
import type { ExchangeResult, NoResponse } from "../../../platform/http2/exchange.ts";
import { configuredLookup, createPublicLookup } from "../../../platform/http2/lookup.ts";
import { Http2Pool } from "../../../platform/http2/pool.ts";
import type { WebPushSettings } from "../../provider-settings.ts";
import { fitted, fittingJson } from "../content.ts";
import {
  isSuccess,
  noResponseOutcome,
  notForBrowsers,
  reasonOf,
  retryMs,
  sent,
  serverFailureOutcome,
  throttledOutcome,
  whole,
} from "../outcomes.ts";
import {
  collapseIdOf,
  dataOf,
  type KeptToken,
  type NotificationContent,
  type Outcome,
  type PayloadSize,
  type PushProvider,
  type Recipient,
  type Send,
} from "../provider.ts";
import { Http1Pool } from "./http1-pool.ts";
import { type Urgency, Vapid } from "./vapid.ts";
import { canonicalText, parseSubscription, type Subscription } from "./webpush-subscription.ts";

const connections = { maxSessions: 2, maxStreams: 100, idleMs: 60_000 };
const http1Connections = { maxSockets: 50, idleMs: 60_000, timeoutMs: 10_000 };
/** Most push services with open connections. Microsoft's has a host for each region. */
const maxServices = 32;
/** Bytes: 4096 (RFC 8291 section 4) without the header, the tag and the padding's delimiter. */
const maxPayloadBytes = 3993;
/** Bytes of a second try after 413: Firefox for Android takes 3,070 of what is encrypted, 103 more. */
const shortPayloadBytes = 2800;
/** Seconds: four weeks, the most that push services keep a message. */
const maxTtl = 2_419_200;
/** Bytes of the message id, which comes first, with its name. */
const around = 36 + '{"messageId":"",'.length - "{".length;
/** What push services call a VAPID key that the subscription was not made with. */
const otherKeyPattern = /\b(?:VapidPkHashMismatch|UnauthorizedRegistration)\b/;

/** A push service, which is known by its origin. */
interface Service {
  pool: Http2Pool | Http1Pool;
  /** By the VAPID keys, in their order. */
  readonly senders: readonly Vapid[];
}

/** The parts that all messages of a chunk share: the payload around the message id. */
interface Chunk {
  readonly ttl: string;
  readonly urgency: Urgency;
  readonly end: string;
  readonly shortEnd: string;
}

const publicLookup = createPublicLookup();

/** The origin of Chrome's endpoints, and the paths that they have had before the subscription's id. */
const chromePath = /^(https:\/\/fcm\.googleapis\.com\/)(?:fcm\/send|wp)\//;

export class WebPushProvider implements PushProvider {
  readonly name = "webpush";
  readonly maxInFlight = 200;
  readonly #settings: WebPushSettings;
  readonly #clock: Clock;
  readonly #connect: Connect;
  readonly #services = new LRUCache<string, Service>({
    max: maxServices,
    dispose: ({ pool }) => this.#close(pool),
  });
  /** The pools that are being closed. */
  readonly #closings = new Set<Promise<void>>();

  constructor(settings: WebPushSettings, clock: Clock, connect: Connect) {
    this.#settings = settings;
    this.#clock = clock;
    this.#connect = connect;
  }

  tokenProblem(token: string): string | undefined {
    const parsed = parseSubscription(token, this.#settings.allowedHosts);
    return "problem" in parsed ? parsed.problem : undefined;
  }

  /** A subscription is known by its endpoint (Push API, section 8), which Chrome writes with either of two paths. */
  deviceOf(token: string): KeptToken {
    const parsed = parseSubscription(token, this.#settings.allowedHosts);
    if ("problem" in parsed) return { token, identity: token };
    const identity = parsed.value.endpoint.href.replace(chromePath, "$1fcm/send/");
    return { token: canonicalText(parsed.value), identity };
  }

  serviceOf(token: string): string {
    const parsed = parseSubscription(token, this.#settings.allowedHosts);
    return "problem" in parsed ? "" : parsed.value.endpoint.origin;
  }

  payloadSize(content: NotificationContent): PayloadSize | undefined {
    if (content.silent) return undefined;
    return fitted(content, maxPayloadBytes, (shown) => around + Buffer.byteLength(payloadOf(shown)));
  }

  prepare(content: NotificationContent): Send {
    if (content.silent) return async () => notForBrowsers;
    const seconds = Math.ceil((content.expiresAt - this.#clock.now()) / 1000);
    const endIn = (bytes: number): string => fittingJson(content, bytes - around, payloadOf).slice(1);
    const chunk: Chunk = {
      ttl: String(Math.min(Math.max(seconds, 0), maxTtl)),
      urgency: content.priority ?? "high",
      end: endIn(maxPayloadBytes),
      shortEnd: endIn(shortPayloadBytes),
    };
    return (recipient) => this.#send(chunk, recipient);
  }

  /** Each key in turn, until one is that of the subscription. */
  async #send(chunk: Chunk, { token, messageId }: Recipient): Promise<Outcome> {
    // The host may have been removed from the setting since the token was registered.
    let outcome: Outcome = { kind: "failed", reason: "the subscription is not allowed" };
    const parsed = parseSubscription(token, this.#settings.allowedHosts);
    if ("problem" in parsed) return outcome;
    for (const sender of this.#serviceAt(parsed.value.endpoint.origin).senders) {
      outcome = await this.#sendAs(sender, chunk, parsed.value, messageId);
      if (outcome.kind !== "foreign") break;
    }
    return outcome;
  }

  async #sendAs(
    sender: Vapid,
    { ttl, urgency, end, shortEnd }: Chunk,
    subscription: Subscription,
    messageId: string,
  ): Promise<Outcome> {
    const { endpoint } = subscription;
    const shared = await sender.fields(urgency);
    const head = { path: endpoint.pathname + endpoint.search, shared, own: ["ttl", ttl] };
    const request = (text: string): Promise<ExchangeResult> =>
      this.#request(endpoint.origin, head, encrypted(subscription, `{"messageId":"${messageId}",${text}`));
    let response = await request(end);
    // The status says it all: some services respond before they have read the whole, and close the connection.
    if (response.responded && response.status === 413 && shortEnd !== end) response = await request(shortEnd);
    return this.#outcomeOf(whole(response));
  }

  /** Sends a request; to a service without HTTP/2 over HTTP/1.1. */
  async #request(origin: string, head: RequestHead, body: Buffer): Promise<ExchangeResult> {
    const response = await this.#serviceAt(origin).pool.request(head, body);
    if (response.responded || !lacksHttp2(response)) return response;
    this.#useHttp1(this.#serviceAt(origin), origin);
    return this.#serviceAt(origin).pool.request(head, body);
  }

  #serviceAt(origin: string): Service {
    let service = this.#services.get(origin);
    if (service === undefined) {
      const { subject, vapidKeys } = this.#settings;
      const senders = vapidKeys.map((key) => new Vapid(subject, key, origin, this.#clock));
      const lookup = this.#lookupOf(origin);
      const pool = new Http2Pool({ connect: this.#connect, origin, lookup, ...connections });
      service = { pool, senders };
      this.#services.set(origin, service);
    }
    return service;
  }

  /** The look-up of the origin's host: the system's for an origin that the settings name, DNS for any other. */
  #lookupOf(origin: string): LookupFunction {
    return this.#settings.allowedHosts.includes(origin) ? configuredLookup : publicLookup;
  }

  /** Switches the service to HTTP/1.1. HTTP/2 is not tried again while the service is in the cache. */
  #useHttp1(service: Service, origin: string): void {
    if (service.pool instanceof Http1Pool) return;
    this.#close(service.pool);
    service.pool = new Http1Pool({ origin, lookup: this.#lookupOf(origin), ...http1Connections });
  }

  /**
   * The outcome of a push service's response. Another VAPID key is 403 at Google, 401 at Mozilla (errno 109), and a 400
   * of this name at Apple. A host that does not exist is the token's fault.
   */
  #outcomeOf(response: ExchangeResult): Outcome {
    if (!response.responded) {
      const { reason } = response;
      return reason === "ENOTFOUND"
        ? { kind: "retry", isOwn: true, afterMs: retryMs, reason }
        : noResponseOutcome(response);
    }
    const { status } = response;
    const otherKey = status === 400 ? otherKeyPattern.exec(response.text())?.[0] : undefined;
    const reason = reasonOf(status, otherKey);
    if (isSuccess(status)) return sent;
    if (status === 404 || status === 410) return { kind: "dead", reason };
    if (status === 401 || status === 403 || otherKey !== undefined) return { kind: "foreign", reason };
    // Microsoft returns 406 where others return 429.
    if (status === 429 || status === 406) return throttledOutcome(response, this.#clock, reason);
    return status >= 500 ? serverFailureOutcome(response, this.#clock) : { kind: "failed", reason };
  }

  #close(pool: Service["pool"]): void {
    const closing = pool.close();
    this.#closings.add(closing);
    void closing.finally(() => this.#closings.delete(closing));
  }

  async close(): Promise<void> {
    this.#services.clear();
    await Promise.all(this.#closings);
  }
}

/** Whether the peer has no HTTP/2: it did not choose it in the TLS handshake, or its first bytes were not HTTP/2. */
function lacksHttp2({ cause, reason }: NoResponse): boolean {
  return (
    cause === "unreachable" &&
    (reason === noHttp2 || /^ERR_SSL_.*ALERT_NO_APPLICATION_PROTOCOL$/.test(reason))
  );
}

/** Encrypts a payload for the browser (RFC 8291), with a key pair that is used once. */
function encrypted({ p256dh, auth }: Subscription, payload: string): Buffer {
  const privateKey = createECDH("prime256v1");
  privateKey.generateKeys();
  return ece.encrypt(Buffer.from(payload), {
    version: "aes128gcm",
    privateKey,
    dh: p256dh,
    authSecret: auth,
  });
}

/** The payload for the service worker that shows it. A repeat replaces the first by `tag`; Topic would be throttled. */
function payloadOf(content: NotificationContent): string {
  const { notificationId, title, message, imageUrl } = content;
  const tag = collapseIdOf(content);
  return JSON.stringify({
    notificationId,
    tag,
    title,
    body: message,
    image: imageUrl,
    data: dataOf(content),
  });
}
