/**
 * FCM HTTP v1: `POST /v1/projects/{id}/messages:send` and the token endpoint beside it. Owns the order in
 * which a request is looked at, and what of a message goes to the ledger.
 */
import { type Clock, systemClock } from "../../../platform/base/clock.ts";
import { newServiceAccount, type ServiceAccount } from "../credentials.ts";
import type { Exchange, FakeResponse } from "../exchange.ts";
import { createLedger, type Ledger } from "../ledger.ts";
import { type ListenerOptions, listen } from "../listener.ts";
import type { RunningFake } from "../running-fake.ts";
import { readScenario, type Scenario } from "../scenario.ts";
import { createStage, type Stage } from "../stage.ts";
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

/** As the real one announces. */
const maxConcurrentStreams = 100;
const sendPath = /^\/v1\/projects\/([^/?]+)\/messages:send(?:\?|$)/;

interface FcmFakeOptions extends ListenerOptions {
  /** A new service account of the project `gatepost-fake` unless given. */
  readonly serviceAccount?: Omit<ServiceAccount, "token_uri">;
  /** `expires_in` of access tokens; 3599 unless given. */
  readonly accessTokenSeconds?: number;
  readonly clock?: Clock;
}

export interface FcmFake extends RunningFake<FcmRow> {
  /** What a sender authenticates with: the service account's JSON. */
  readonly credentials: ServiceAccount;
  /** Makes the access tokens that were issued bad; a sender has to get a new one. */
  expireAccessTokens(): void;
}

/** @throws what listening throws (EADDRINUSE, EACCES) */
export async function startFcmFake(options: FcmFakeOptions = {}): Promise<FcmFake> {
  const { clock = systemClock, accessTokenSeconds = 3599 } = options;
  const account = options.serviceAccount ?? (await newServiceAccount("gatepost-fake"));
  const ledger = createLedger(clock);
  const stage = createStage({
    clock,
    ledger,
    repertoire: { answer: (row) => fcmResponses[row as FcmRow](), byToken: conventionOf },
    connections: () => listener,
  });
  let handle: (exchange: Exchange) => void = () => undefined;
  const listener = await listen(options, { maxConcurrentStreams, http1: true }, (exchange) =>
    handle(exchange),
  );
  const credentials = { ...account, token_uri: `${listener.origin}/token` };
  const accessTokens = createAccessTokens(credentials, accessTokenSeconds, clock);
  handle = fcm({ project: account.project_id, ledger, stage, accessTokens, startedAt: clock.now() });

  return {
    provider: "fcm",
    origin: listener.origin,
    credentials,
    ledger,
    play: (scenario) => stage.play(readScenario(scenario, fcmRows)),
    playing: stage.playing,
    clear() {
      stage.clear();
      ledger.clear();
    },
    stopPlaying: stage.clear,
    expireAccessTokens: accessTokens.expire,
    close: listener.close,
  };
}

/** Tokens that play something by their name. */
const conventions: Readonly<Record<string, Scenario<FcmRow>>> = {
  unregistered: { answer: "UNREGISTERED" },
  invalid: { answer: "INVALID_TOKEN" },
  mismatch: { answer: "SENDER_ID_MISMATCH" },
  badpayload: { answer: "INVALID_ARGUMENT" },
  quota: { answer: "QUOTA_EXCEEDED", retryAfter: 60 },
  internal: { answer: "INTERNAL" },
  badgateway: { answer: "BAD_GATEWAY" },
  unavailable: { answer: "UNAVAILABLE", retryAfter: 30 },
  slow: { delayMs: 2000 },
  timeout: { fault: "timeout" },
  reset: { fault: "reset-after-accept" },
};
const convention = new RegExp(`^(${Object.keys(conventions).join("|")})-`);

function conventionOf(token: string): Scenario | undefined {
  const name = convention.exec(token)?.[1];
  return name === undefined ? undefined : conventions[name];
}

interface Dependencies {
  readonly project: string;
  readonly ledger: Ledger;
  readonly stage: Stage;
  readonly accessTokens: AccessTokens;
  /** Milliseconds since the epoch; in the names of messages. */
  readonly startedAt: number;
}

function fcm({
  project,
  ledger,
  stage,
  accessTokens,
  startedAt,
}: Dependencies): (exchange: Exchange) => void {
  const ownPath = `/v1/projects/${project}/messages:send`;
  const namePrefix = `projects/${project}/messages/0:${startedAt}000%`;
  let accepted = 0;

  function refuse(exchange: Exchange, name: string, answer: FakeResponse): void {
    ledger.answered(name);
    exchange.answer(answer);
  }

  function token(exchange: Exchange): void {
    const refusal = accessTokens.refusal(exchange);
    if (refusal) refuse(exchange, `token ${refusal.status}`, refusal);
    else stage.performToken(exchange, accessTokens.issue);
  }

  /** Undefined: it may be read. */
  function frontRefusal({ method, path, headers }: Exchange): [string, FakeResponse] | undefined {
    if (method !== "POST" || (path !== ownPath && !sendPath.test(path))) return ["404", notFoundPage(path)];
    if (!accessTokens.isGood(headers.authorization)) {
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
    if ("answer" in read) return refuse(exchange, "INVALID_ARGUMENT", read.answer);
    const { message, validateOnly } = read;
    const target = message.token || (message.topic ? `/topics/${message.topic}` : (message.condition ?? ""));
    stage.perform(exchange, target, () => {
      if (validateOnly) return ok(`{\n  "name": "projects/${project}/messages/fake_message_id"\n}\n`);
      const tag = message.android?.notification?.["tag"];
      ledger.record({
        token: target,
        messageId: message.data?.["messageId"],
        collapseId: typeof tag === "string" ? tag : undefined,
        payload: message,
      });
      accepted += 1;
      return ok(`{\n  "name": "${namePrefix}${accepted.toString(16).padStart(16, "0")}"\n}\n`);
    });
  };
}

type Read =
  | { readonly answer: FakeResponse }
  | { readonly message: FcmMessage; readonly validateOnly: boolean };

function readBody(body: Buffer): Read {
  let json: { message?: FcmMessage | null; validate_only?: boolean; validateOnly?: boolean };
  try {
    json = JSON.parse(body.toString());
  } catch {
    const description = "Invalid JSON payload received. Unexpected token.";
    return { answer: invalidJson({ field: "", description }) };
  }
  const typed = typeProblem(json);
  if (typed) return { answer: invalidJson(typed) };
  const { message } = json;
  if (!message) {
    return { answer: invalidArgument({ field: "message", description: "Message is not set." }) };
  }
  const problem = messageProblem(message, body.length);
  if (problem) return { answer: invalidArgument(problem) };
  return { message, validateOnly: (json.validate_only ?? json.validateOnly) === true };
}
