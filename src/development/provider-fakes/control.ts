/**
 * The control port: HTTP/1.1 with JSON, for use from other processes. Shows the ledgers and plays scenarios. It has
 * no authentication and listens on loopback only.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { ApnsFake } from "./apns/apns.ts";
import type { FcmFake } from "./fcm/fcm.ts";
import type { Ledger } from "./ledger.ts";
import type { FakeProvider, RunningFake } from "./running-fake.ts";
import type { Scenario } from "./scenario.ts";
import type { PlayingScenario } from "./scenario-player.ts";
import type { WebPushFake } from "./webpush/webpush.ts";

const maxPage = 10_000;
const defaultPage = 1000;
const maxBody = 1_048_576;

/** The fakes that are controlled. */
export interface ControlledFakes {
  readonly fcm: FcmFake;
  readonly apns: ApnsFake;
  readonly webpush: WebPushFake;
}

export interface ControlPort {
  readonly origin: string;
  close(): Promise<void>;
}

/** A refusal of a request; its message goes into the response. */
class ControlError extends Error {
  readonly status: number;
  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

interface Call {
  /** The fake that the query names, or all of them. */
  readonly chosen: readonly RunningFake[];
  readonly query: URLSearchParams;
  readonly body: unknown;
}

interface Result {
  readonly status: number;
  /** Undefined: no body. */
  readonly json?: unknown;
  readonly ndjson?: readonly unknown[];
}

type Operation = (call: Call, fakes: ControlledFakes) => Result;

/** By method and path; `*` stands for a last segment. */
const operations: Readonly<Record<string, Operation>> = {
  "GET /": () => ({ status: 200, json: { operations: Object.keys(operations) } }),
  "GET /ledger": ({ chosen }) => ({
    status: 200,
    json: byProvider(chosen, ({ ledger }) => ledger.summary()),
  }),
  "GET /ledger/tokens": (call) => ({ status: 200, ndjson: tokensPage(call) }),
  "GET /ledger/repeats": (call) => ({ status: 200, ndjson: chosenLedger(call).repeats() }),
  "GET /ledger/recent": ({ chosen }) => ({
    status: 200,
    json: byProvider(chosen, ({ ledger }) => ledger.recent()),
  }),
  "DELETE /ledger": ({ chosen }) => {
    for (const { ledger } of chosen) ledger.clear();
    return { status: 204 };
  },
  "GET /play": ({ chosen }) => ({
    status: 200,
    json: byProvider(chosen, (fake) => fake.playing().map(shown)),
  }),
  "POST /play": play,
  "DELETE /play": ({ chosen, query }) => {
    const id = query.get("id");
    for (const fake of chosen) {
      if (id === null) fake.stopPlaying();
      else for (const playing of fake.playing()) if (String(playing.id) === id) playing.stop();
    }
    return { status: 204 };
  },
  "POST /fcm/expire-access-tokens": (_call, { fcm }) => {
    fcm.expireAccessTokens();
    return { status: 204 };
  },
  "POST /webpush/subscriptions": ({ body }, { webpush }) => ({
    status: 201,
    json: webpush.subscribe(optionalText(body, "name")),
  }),
  "DELETE /webpush/subscriptions": ({ body }, { webpush }) => {
    const endpoint = optionalText(body, "endpoint");
    if (endpoint === undefined)
      throw new ControlError(400, "The body is the subscription, with its endpoint.");
    webpush.unsubscribe({ endpoint, keys: { p256dh: "", auth: "" } });
    return { status: 204 };
  },
};

/**
 * Starts the control port on 127.0.0.1.
 * @throws the error of `listen` (EADDRINUSE, EACCES)
 */
export async function startControlPort(fakes: ControlledFakes, port: number): Promise<ControlPort> {
  const server = createServer((request, response) => {
    handle(request, fakes).then(
      (result) => write(response, result),
      (error: unknown) => write(response, errorResult(error)),
    );
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, "127.0.0.1", resolve);
  });
  const { port: bound } = server.address() as AddressInfo;
  return {
    origin: `http://127.0.0.1:${bound}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

async function handle(request: IncomingMessage, fakes: ControlledFakes): Promise<Result> {
  // Prevents DNS rebinding: a web page could otherwise call the port under a name that resolves to loopback.
  if (!/^(127\.0\.0\.1|localhost|\[::1\])(:\d+)?$/.test(request.headers.host ?? "")) {
    throw new ControlError(403, "The control port is called by its loopback address.");
  }
  const url = new URL(request.url ?? "/", "http://control");
  const operation = operations[`${request.method} ${url.pathname}`];
  if (!operation) throw new ControlError(404, `There is ${Object.keys(operations).join(", ")}.`);
  const body = await readJson(request);
  return operation({ chosen: chosenOf(url.searchParams, fakes), query: url.searchParams, body }, fakes);
}

function chosenOf(query: URLSearchParams, fakes: ControlledFakes): readonly RunningFake[] {
  const all: readonly RunningFake[] = [fakes.fcm, fakes.apns, fakes.webpush] as readonly RunningFake[];
  const provider = query.get("provider");
  if (provider === null) return all;
  const chosen = all.filter((fake) => fake.provider === provider);
  if (chosen.length === 0) throw new ControlError(400, "provider is fcm, apns or webpush.");
  return chosen;
}

function chosenLedger({ chosen }: Call): Ledger {
  const [fake] = chosen;
  if (!fake || chosen.length > 1)
    throw new ControlError(400, "Choose a ledger: add ?provider=fcm, apns or webpush.");
  return fake.ledger;
}

function tokensPage(call: Call): readonly unknown[] {
  const { query } = call;
  const ledger = chosenLedger(call);
  const limit = Number(query.get("limit") ?? defaultPage);
  if (!Number.isInteger(limit) || limit < 1 || limit > maxPage) {
    throw new ControlError(400, `limit is from 1 to ${maxPage}.`);
  }
  return ledger.tokens(query.get("after") ?? "", limit);
}

function play({ chosen, body }: Call): Result {
  const [fake] = chosen;
  if (!fake || chosen.length > 1)
    throw new ControlError(400, "Choose a provider: add ?provider=fcm, apns or webpush.");
  try {
    // The fake validates it.
    return { status: 201, json: shown(fake.play(body as Scenario)) };
  } catch (error) {
    throw error instanceof TypeError ? new ControlError(400, error.message) : error;
  }
}

function shown({ id, scenario, played }: PlayingScenario): object {
  return { id, scenario, played };
}

function byProvider<T>(
  chosen: readonly RunningFake[],
  of: (fake: RunningFake) => T,
): Partial<Record<FakeProvider, T>> {
  return Object.fromEntries(chosen.map((fake) => [fake.provider, of(fake)]));
}

function optionalText(body: unknown, name: string): string | undefined {
  const value = typeof body === "object" && body !== null ? Reflect.get(body, name) : undefined;
  if (value === undefined || typeof value === "string") return value;
  throw new ControlError(400, `${name} is a string.`);
}

async function readJson(request: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of request) {
    length += chunk.length;
    if (length > maxBody) throw new ControlError(413, `The body is longer than ${maxBody} bytes.`);
    chunks.push(chunk);
  }
  if (length === 0) return undefined;
  try {
    return JSON.parse(Buffer.concat(chunks).toString());
  } catch {
    throw new ControlError(400, "The body is not JSON.");
  }
}

function errorResult(error: unknown): Result {
  if (error instanceof ControlError) return { status: error.status, json: { error: error.message } };
  if (error instanceof TypeError) return { status: 400, json: { error: error.message } };
  return { status: 500, json: { error: String(error) } };
}

function write(response: ServerResponse, { status, json, ndjson }: Result): void {
  if (ndjson) {
    response.writeHead(status, { "content-type": "application/x-ndjson" });
    response.end(ndjson.map((line) => `${JSON.stringify(line)}\n`).join(""));
  } else if (json === undefined) {
    response.writeHead(status).end();
  } else {
    response.writeHead(status, { "content-type": "application/json" });
    response.end(`${JSON.stringify(json, null, 2)}\n`);
  }
}
