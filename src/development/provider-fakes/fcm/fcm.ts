/**
 * FCM HTTP v1: `POST /v1/projects/{id}/messages:send`, and the OAuth token endpoint. Owns the order in which a
 * request is checked, and the entries of the ledger.
 */
import type { KeyObject } from "node:crypto";
import { type Clock, systemClock } from "../../../platform/base/clock.ts";
import { newServiceAccount, type ServiceAccount } from "../credentials.ts";
import type { Exchange, FakeResponse } from "../exchange.ts";
import { createLedger, type Ledger } from "../ledger.ts";
import { type ListenerOptions, listen } from "../listener.ts";
import { type RunningFake, runningFake } from "../running-fake.ts";
import type { Scenario } from "../scenario.ts";
import { createScenarioPlayer, type ScenarioPlayer, scenarioByName } from "../scenario-player.ts";
import { type FcmMessage, messageProblem, typeProblem } from "./fcm-message.ts";
import { type AccessTokens, createAccessTokens } from "./fcm-oauth.ts";
import {
  type FcmRow,
  fcmResponses,
  fcmRows,
  invalidArgument,
  invalidJson,
  notFoundPage,
  ok,
  permissionDenied,
} from "./fcm-responses.ts";

/** The value that the real FCM announces. */
const maxConcurrentStreams = 100;
const sendPath = /^\/v1\/projects\/([^/?]+)\/messages:send(?:\?|$)/;

interface FcmFakeOptions extends ListenerOptions {
  /** A new service account of the project `gatepost-fake` by default. */
  readonly serviceAccount?: Omit<ServiceAccount, "token_uri">;
  /** `expires_in` of access tokens; 3599 by default. */
  readonly accessTokenSeconds?: number;
  readonly clock?: Clock;
}

export interface FcmFake extends RunningFake<FcmRow> {
  /** The service account with which a sender authenticates. */
  readonly credentials: ServiceAccount;
  /** Makes all issued access tokens invalid; a sender has to get a new one. */
  expireAccessTokens(): void;
  /** The public keys of the service account, by their ids. Access tokens of one that is removed stay valid. */
  readonly keys: Map<string, KeyObject>;
}

/** @throws the error of `listen` (EADDRINUSE, EACCES) */
export async function startFcmFake(options: FcmFakeOptions = {}): Promise<FcmFake> {
  const { clock = systemClock, accessTokenSeconds = 3599 } = options;
  const account = options.serviceAccount ?? (await newServiceAccount("gatepost-fake"));
  const ledger = createLedger(clock);
  const player = createScenarioPlayer({
    clock,
    ledger,
    provider: { response: (row) => fcmResponses[row as FcmRow](), byToken: conventionOf },
    connections: () => listener,
  });
  let handle: (exchange: Exchange) => void = () => undefined;
  const listener = await listen(
    options,
    { maxConcurrentStreams, http1: true },
    { handle: (exchange) => handle(exchange), clock },
  );
  const credentials = { ...account, token_uri: `${listener.origin}/token` };
  const accessTokens = createAccessTokens(credentials, accessTokenSeconds, clock);
  handle = fcm({ project: account.project_id, ledger, player, accessTokens, startedAt: clock.now() });

  return {
    ...runningFake({ provider: "fcm", listener, ledger, player, rows: fcmRows }),
    credentials,
    expireAccessTokens: accessTokens.expire,
    keys: accessTokens.keys,
  };
}

/** Scenarios that tokens play by convention, because of their name. */
const conventions: Readonly<Record<string, Scenario<FcmRow>>> = {
  unregistered: { answer: "UNREGISTERED" },
  invalid: { answer: "INVALID_TOKEN" },
  mismatch: { answer: "SENDER_ID_MISMATCH" },
  badpayload: { answer: "INVALID_ARGUMENT" },
  quota: { answer: "DEVICE_QUOTA_EXCEEDED", retryAfter: 60 },
  internal: { answer: "INTERNAL" },
  badgateway: { answer: "BAD_GATEWAY" },
  unavailable: { answer: "UNAVAILABLE", retryAfter: 30 },
  slow: { delayMs: 2000 },
  timeout: { fault: "timeout" },
  reset: { fault: "reset-after-accept" },
};
const conventionOf = scenarioByName(conventions, "-");

interface Dependencies {
  readonly project: string;
  readonly ledger: Ledger;
  readonly player: ScenarioPlayer;
  readonly accessTokens: AccessTokens;
  /** Milliseconds since the epoch; in the names of messages. */
  readonly startedAt: number;
}

function fcm({
  project,
  ledger,
  player,
  accessTokens,
  startedAt,
}: Dependencies): (exchange: Exchange) => void {
  const ownPath = `/v1/projects/${project}/messages:send`;
  const namePrefix = `projects/${project}/messages/0:${startedAt}000%`;
  let accepted = 0;

  function refuse(exchange: Exchange, name: string, response: FakeResponse): void {
    ledger.countResponse(name);
    exchange.respond(response);
  }

  function token(exchange: Exchange): void {
    const refusal = accessTokens.refusal(exchange);
    if (refusal) refuse(exchange, `token ${refusal.status}`, refusal);
    else player.respondToTokenRequest(exchange, accessTokens.issue);
  }

  /** The error that is given before the body is read, with its name; undefined if there is none. */
  function frontRefusal({ method, path, headers }: Exchange): [string, FakeResponse] | undefined {
    if (method !== "POST" || (path !== ownPath && !sendPath.test(path))) return ["404", notFoundPage(path)];
    if (!accessTokens.isValid(headers.authorization)) {
      return ["UNAUTHENTICATED", fcmResponses.UNAUTHENTICATED()];
    }
    const named = sendPath.exec(path)?.[1];
    return path === ownPath || named === project
      ? undefined
      : ["PERMISSION_DENIED", permissionDenied(named ?? "")];
  }

  return (exchange) => {
    if (exchange.path === "/token") return token(exchange);
    const refusal = frontRefusal(exchange);
    if (refusal) return refuse(exchange, ...refusal);
    const read = readBody(exchange.body);
    if ("refusal" in read) return refuse(exchange, "INVALID_ARGUMENT", read.refusal);
    const { message, validateOnly } = read;
    const target = message.token || (message.topic ? `/topics/${message.topic}` : (message.condition ?? ""));
    player.respond(exchange, target, () => {
      if (validateOnly) {
        return { response: ok(`{\n  "name": "projects/${project}/messages/fake_message_id"\n}\n`) };
      }
      const tag = message.android?.notification?.["tag"];
      const arrival = ledger.record(
        {
          token: target,
          messageId: message.data?.["messageId"],
          collapseId: typeof tag === "string" ? tag : undefined,
          payload: message,
        },
        exchange,
      );
      accepted += 1;
      const name = `${namePrefix}${accepted.toString(16).padStart(16, "0")}`;
      return { response: ok(`{\n  "name": "${name}"\n}\n`), arrival };
    });
  };
}

type Read =
  | { readonly refusal: FakeResponse }
  | { readonly message: FcmMessage; readonly validateOnly: boolean };

function readBody(body: Buffer): Read {
  let json: { message?: FcmMessage | null; validate_only?: boolean; validateOnly?: boolean };
  try {
    json = JSON.parse(body.toString());
  } catch {
    const description = "Invalid JSON payload received. Unexpected token.";
    return { refusal: invalidJson({ field: "", description }) };
  }
  const typed = typeProblem(json);
  if (typed) return { refusal: invalidJson(typed) };
  const { message } = json;
  if (!message) {
    return { refusal: invalidArgument({ field: "message", description: "Message is not set." }) };
  }
  const problem = messageProblem(message, body.length);
  if (problem) return { refusal: invalidArgument(problem) };
  return { message, validateOnly: (json.validate_only ?? json.validateOnly) === true };
}
