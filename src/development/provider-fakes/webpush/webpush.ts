/**
 * A Web Push service (RFC 8030) and its browsers: `POST /push/{subscription}`. Owns the order in which a request
 * is checked. The decrypted messages go to the ledger.
 */
import { randomBytes } from "node:crypto";
import { type Clock, systemClock } from "../../../platform/base/clock.ts";
import { newVapidCredentials, type VapidCredentials } from "../credentials.ts";
import type { Exchange } from "../exchange.ts";
import { createLedger, type Ledger } from "../ledger.ts";
import { type ListenerOptions, listen } from "../listener.ts";
import { type RunningFake, runningFake } from "../running-fake.ts";
import type { Scenario } from "../scenario.ts";
import { createScenarioPlayer, type ScenarioPlayer, scenarioByName } from "../scenario-player.ts";
import { decryptPushMessage } from "./message-encryption.ts";
import { createSubscriptions, type PushSubscription, type Subscriptions } from "./subscriptions.ts";
import { type CheckVapid, createCheckVapid } from "./vapid.ts";
import { otherKeyRows, type WebPushRow, webPushResponse, webPushRows } from "./webpush-responses.ts";

const maxConcurrentStreams = 100;
const maxBody = 4096;
const pushPath = "/push/";

interface WebPushFakeOptions extends ListenerOptions {
  /** New ones by default. */
  readonly credentials?: VapidCredentials;
  /**
   * 32 bytes, random by default. The keys of subscriptions are derived from it: with the same seed they outlive the
   * fake.
   */
  readonly seed?: Buffer;
  /** Whose words it has for a sender with another VAPID key; Google's unless given. */
  readonly vendor?: keyof typeof otherKeyRows;
  readonly clock?: Clock;
}

export interface WebPushFake extends RunningFake<WebPushRow> {
  /** The VAPID keys of the sender; subscriptions are created for them. */
  readonly credentials: VapidCredentials;
  /**
   * Creates a subscription, as a browser does.
   * @param name begins the id, which is the token in the ledger and in scenarios; random by default
   * @param publicKey of the sender; that of `credentials` by default
   */
  subscribe(name?: string, publicKey?: string): PushSubscription;
  /** Ends a subscription, as a user does by revoking the permission: 410 from now on. */
  unsubscribe(subscription: PushSubscription): void;
}

/** @throws the error of `listen` (EADDRINUSE, EACCES) */
export async function startWebPushFake(options: WebPushFakeOptions = {}): Promise<WebPushFake> {
  const { clock = systemClock, credentials = newVapidCredentials(), seed = randomBytes(32) } = options;
  const otherKeyRow = otherKeyRows[options.vendor ?? "google"];
  const ledger = createLedger(clock);
  const subscriptions = createSubscriptions(seed);
  const ended = new Set<string>();
  const player = createScenarioPlayer({
    clock,
    ledger,
    provider: { response: (row) => webPushResponse(row as WebPushRow), byToken: conventionOf },
    connections: () => listener,
  });
  const origin = () => listener.origin;
  const checkVapid = createCheckVapid(origin, clock);
  const handle = webPush({ origin, ledger, player, subscriptions, ended, checkVapid, otherKeyRow });
  const listener = await listen(options, { maxConcurrentStreams, http1: true }, { handle, clock });

  return {
    ...runningFake({
      provider: "webpush",
      listener,
      ledger,
      player,
      rows: webPushRows,
      forget: () => ended.clear(),
    }),
    credentials,
    subscribe(name, publicKey = credentials.publicKey) {
      if (name !== undefined && !/^[\w-]+$/.test(name)) {
        throw new TypeError("The name of a subscription is of letters, digits, _ and -.");
      }
      const id = subscriptions.subscribe(name, publicKey);
      const keys = subscriptions.keys(id);
      return {
        endpoint: `${listener.origin}${pushPath}${id}`,
        keys: { p256dh: keys.publicKey.toString("base64url"), auth: keys.auth.toString("base64url") },
      };
    },
    unsubscribe: ({ endpoint }) => void ended.add(endpoint.slice(endpoint.lastIndexOf("/") + 1)),
  };
}

/** Scenarios that subscriptions play by convention, because of their name. */
const conventions: Readonly<Record<string, Scenario<WebPushRow>>> = {
  gone: { answer: "Gone" },
  notfound: { answer: "NotFound" },
  badrequest: { answer: "BadRequest" },
  forbidden: { answer: "Forbidden" },
  toomany: { answer: "TooManyRequests", retryAfter: 60 },
  internal: { answer: "InternalServerError" },
  badgateway: { answer: "BadGateway" },
  unavailable: { answer: "ServiceUnavailable", retryAfter: 30 },
  slow: { delayMs: 2000 },
  timeout: { fault: "timeout" },
  reset: { fault: "reset-after-accept" },
};
const conventionOf = scenarioByName(conventions, "-");

interface Dependencies {
  readonly origin: () => string;
  readonly ledger: Ledger;
  readonly player: ScenarioPlayer;
  readonly subscriptions: Subscriptions;
  /** Ids of the subscriptions that have ended. */
  readonly ended: ReadonlySet<string>;
  readonly checkVapid: CheckVapid;
  readonly otherKeyRow: WebPushRow;
}

type Problem = readonly [WebPushRow, string];

function webPush(dependencies: Dependencies): (exchange: Exchange) => void {
  const { origin, ledger, player, subscriptions, ended, checkVapid, otherKeyRow } = dependencies;
  let accepted = 0;

  function problemOf(exchange: Exchange, id: string): Problem | undefined {
    const { method, path, headers } = exchange;
    if (!path.startsWith(pushPath) || !subscriptions.isKnown(id))
      return ["NotFound", "No such subscription."];
    if (method !== "POST") return ["MethodNotAllowed", "A subscription takes POST."];
    const sender = checkVapid(headers.authorization);
    if (typeof sender === "string") return ["Unauthorized", sender];
    if (!subscriptions.isFor(id, sender.publicKey)) {
      return [otherKeyRow, "The subscription was made for another application server key."];
    }
    if (ended.has(id)) return ["Gone", "The subscription has ended."];
    // Firefox for Android takes less.
    return headerProblem(exchange, id.startsWith("small-") ? 3070 : maxBody);
  }

  return (exchange) => {
    const id = exchange.path.slice(pushPath.length);
    const problem = problemOf(exchange, id);
    const text = problem ? "" : decrypted(exchange.body, id, subscriptions);
    if (problem || typeof text !== "string") {
      const [row, message] = problem ?? ["BadRequest", (text as Error).message];
      ledger.countResponse(row);
      return exchange.respond(webPushResponse(row as WebPushRow, message));
    }
    return player.respond(exchange, id, () => {
      const { messageId, tag } = membersOf(text);
      const message = { token: id, messageId, collapseId: tag, payload: text };
      const arrival = ledger.record(message, exchange);
      accepted += 1;
      const headers = { location: `${origin()}/message/${accepted}`, ttl: String(exchange.headers["ttl"]) };
      return { response: { status: 201, headers }, arrival };
    });
  };
}

function headerProblem({ headers, body }: Exchange, most: number): Problem | undefined {
  const { ttl, urgency, topic } = headers;
  if (typeof ttl !== "string" || !/^\d{1,10}$/.test(ttl)) {
    return ["BadRequest", "TTL is required, in whole seconds."];
  }
  if (urgency !== undefined && !["very-low", "low", "normal", "high"].includes(String(urgency))) {
    return ["BadRequest", "Urgency is very-low, low, normal or high."];
  }
  if (topic !== undefined && !/^[\w-]{1,32}$/.test(String(topic))) {
    return ["BadRequest", "Topic is at most 32 characters of the base64url alphabet."];
  }
  if (body.length > most) return ["PayloadTooLarge", `The body is at most ${most} bytes.`];
  if (body.length > 0 && headers["content-encoding"] !== "aes128gcm") {
    return ["BadRequest", "Content-Encoding is to be aes128gcm."];
  }
  return undefined;
}

/** The text of the message. A message without a body is allowed: it only wakes the service worker. */
function decrypted(body: Buffer, id: string, subscriptions: Subscriptions): string | Error {
  if (body.length === 0) return "";
  try {
    return decryptPushMessage(body, subscriptions.keys(id));
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error));
  }
}

/** The members of the text that the ledger records. The text need not be JSON. */
function membersOf(text: string): { messageId: string | undefined; tag: string | undefined } {
  let value: { messageId?: unknown; tag?: unknown } | null;
  try {
    value = JSON.parse(text);
  } catch {
    value = null;
  }
  const textOf = (member: unknown) => (typeof member === "string" ? member : undefined);
  return { messageId: textOf(value?.messageId), tag: textOf(value?.tag) };
}
