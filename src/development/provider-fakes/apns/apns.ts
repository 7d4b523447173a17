/**
 * APNs: `POST /3/device/{token}`, over HTTP/2 only. Owns the order in which a request is checked, and the entries
 * of the ledger. A connection may have one stream until it has sent a valid provider token.
 */
import { type KeyObject, randomUUID } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import { type Clock, systemClock } from "../../../platform/base/clock.ts";
import { type ApnsCredentials, newApnsCredentials } from "../credentials.ts";
import type { Exchange } from "../exchange.ts";
import { createLedger, type Ledger } from "../ledger.ts";
import { type ListenerOptions, listen } from "../listener.ts";
import { createProviderTokens, type ProviderTokens } from "../provider-tokens.ts";
import { type RunningFake, runningFake } from "../running-fake.ts";
import type { Scenario } from "../scenario.ts";
import { createScenarioPlayer, type ScenarioPlayer, scenarioByName } from "../scenario-player.ts";
import { type ApnsReason, apnsResponse, apnsRows } from "./apns-responses.ts";

const streamsAtFirst = 1;
const streamsAfterwards = 1000;
const maxPayload = 4096;
const maxCollapseIdBytes = 64;
const pushTypes = [
  "alert",
  "background",
  "complication",
  "controls",
  "fileprovider",
  "liveactivity",
  "location",
  "mdm",
  "pushtotalk",
  "voip",
  "widgets",
];
const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const devicePath = "/3/device/";

interface ApnsFakeOptions extends ListenerOptions {
  /** A new key for the app `com.example.app` by default. */
  readonly credentials?: ApnsCredentials;
  readonly clock?: Clock;
}

export interface ApnsFake extends RunningFake<ApnsReason> {
  /** The key with which a sender signs its provider tokens, and the only topic that it may send to. */
  readonly credentials: ApnsCredentials;
  /** The public keys of the team, by their ids. */
  readonly keys: Map<string, KeyObject>;
}

/** @throws the error of `listen` (EADDRINUSE, EACCES) */
export async function startApnsFake(options: ApnsFakeOptions = {}): Promise<ApnsFake> {
  const { clock = systemClock, credentials = newApnsCredentials() } = options;
  const ledger = createLedger(clock);
  const providerTokens = createProviderTokens(credentials, clock);
  const player = createScenarioPlayer({
    clock,
    ledger,
    provider: {
      response: (row, { timestamp }, { headers }) =>
        apnsResponse(row as ApnsReason, idOf(headers), timestamp ?? clock.now()),
      byToken: conventionOf,
    },
    connections: () => listener,
  });
  const handle = apns({ topic: credentials.topic, ledger, player, providerTokens });
  const listener = await listen(
    options,
    { maxConcurrentStreams: streamsAtFirst, http1: false },
    { handle, clock },
  );

  return {
    ...runningFake({
      provider: "apns",
      listener,
      ledger,
      player,
      rows: apnsRows,
      forget: () => providerTokens.clear(),
    }),
    credentials,
    keys: providerTokens.keys,
  };
}

/** Scenarios that device tokens play by convention, because of their first eight digits. */
const conventions: Readonly<Record<string, Scenario<ApnsReason>>> = {
  dead0400: { answer: "BadDeviceToken" },
  dead0401: { answer: "DeviceTokenNotForTopic" },
  dead0403: { answer: "InvalidProviderToken" },
  dead0410: { answer: "Unregistered" },
  dead0411: { answer: "ExpiredToken" },
  dead0429: { answer: "TooManyRequests" },
  dead0500: { answer: "InternalServerError" },
  dead0503: { answer: "ServiceUnavailable" },
  dead0001: { delayMs: 2000 },
  dead0002: { fault: "timeout" },
  dead0003: { fault: "reset-after-accept" },
};
const conventionOf = scenarioByName(conventions, "");

interface Dependencies {
  readonly topic: string;
  readonly ledger: Ledger;
  readonly player: ScenarioPlayer;
  readonly providerTokens: ProviderTokens;
}

function apns({ topic, ledger, player, providerTokens }: Dependencies): (exchange: Exchange) => void {
  function problemOf(exchange: Exchange): ApnsReason | undefined {
    const { method, path, headers } = exchange;
    if (method !== "POST") return "MethodNotAllowed";
    if (!path.startsWith(devicePath)) return "BadPath";
    const tokenProblem = providerTokens.problem(headers.authorization);
    if (tokenProblem) return tokenProblem;
    exchange.allowStreams(streamsAfterwards);
    return (
      deviceProblem(path.slice(devicePath.length)) ??
      headerProblem(headers, topic) ??
      bodyProblem(exchange.body)
    );
  }

  return (exchange) => {
    const problem = problemOf(exchange);
    if (problem) {
      ledger.countResponse(problem);
      return exchange.respond(apnsResponse(problem, idOf(exchange.headers), 0));
    }
    const payload = jsonObject(exchange.body);
    if (payload === undefined) {
      // The body is not JSON, or has no `aps`. Apple documents no reason for that.
      ledger.countResponse("PayloadEmpty");
      return exchange.respond(apnsResponse("PayloadEmpty", idOf(exchange.headers), 0));
    }
    const mismatch = backgroundProblem(exchange.headers, payload.aps);
    if (mismatch) {
      ledger.countResponse(mismatch);
      return exchange.respond(apnsResponse(mismatch, idOf(exchange.headers), 0));
    }
    const token = exchange.path.slice(devicePath.length).toLowerCase();
    const messageId = idOf(exchange.headers) ?? randomUUID();
    return player.respond(exchange, token, () => {
      const collapseId = header(exchange.headers, "apns-collapse-id");
      const arrival = ledger.record({ token, messageId, collapseId, payload }, exchange);
      return { response: { status: 200, headers: { "apns-id": messageId } }, arrival };
    });
  };
}

function deviceProblem(token: string): ApnsReason | undefined {
  if (token === "") return "MissingDeviceToken";
  // Apple says that the length varies. No shorter or longer ones are known.
  return token.length % 2 === 0 && /^[0-9a-fA-F]{64,200}$/.test(token) ? undefined : "BadDeviceToken";
}

function headerProblem(headers: IncomingHttpHeaders, onlyTopic: string): ApnsReason | undefined {
  const id = header(headers, "apns-id");
  if (id !== undefined && !uuid.test(id)) return "BadMessageId";
  const topic = header(headers, "apns-topic");
  if (topic === undefined || topic === "") return "MissingTopic";
  if (!/^[\w.-]+$/.test(topic)) return "BadTopic";
  if (topic !== onlyTopic) return "TopicDisallowed";
  if (!pushTypes.includes(header(headers, "apns-push-type") ?? "")) return "InvalidPushType";
  const expiration = header(headers, "apns-expiration");
  if (expiration !== undefined && !/^\d{1,10}$/.test(expiration)) return "BadExpirationDate";
  const priority = header(headers, "apns-priority");
  if (priority !== undefined && !["1", "5", "10"].includes(priority)) return "BadPriority";
  const collapseId = header(headers, "apns-collapse-id");
  const isTooLong = collapseId !== undefined && Buffer.byteLength(collapseId, "latin1") > maxCollapseIdBytes;
  return isTooLong ? "BadCollapseId" : undefined;
}

function bodyProblem(body: Buffer): ApnsReason | undefined {
  if (body.length > maxPayload) return "PayloadTooLarge";
  return body.length === 0 ? "PayloadEmpty" : undefined;
}

/** Apple: a background notification has priority 5, `content-available`, and nothing that a user notices. */
function backgroundProblem(headers: IncomingHttpHeaders, aps: unknown): ApnsReason | undefined {
  if (header(headers, "apns-push-type") !== "background") return undefined;
  if (header(headers, "apns-priority") !== "5") return "BadPriority";
  const members = typeof aps === "object" && aps !== null ? Object.keys(aps) : [];
  const isNoticed = members.some((name) => ["alert", "badge", "sound"].includes(name));
  return members.includes("content-available") && !isNoticed ? undefined : "InvalidPushType";
}

/** Undefined if the body is no JSON object, or has no `aps`. */
function jsonObject(body: Buffer): { readonly aps: unknown } | undefined {
  try {
    const value: unknown = JSON.parse(body.toString());
    return typeof value === "object" && value !== null && "aps" in value ? value : undefined;
  } catch {
    return undefined;
  }
}

function idOf(headers: IncomingHttpHeaders): string | undefined {
  const id = header(headers, "apns-id");
  return id !== undefined && uuid.test(id) ? id : undefined;
}

function header(headers: IncomingHttpHeaders, name: string): string | undefined {
  const value = headers[name];
  return typeof value === "string" ? value : undefined;
}
