/** The contract contracts/sample.yaml with handlers that answer what they got, served on a port. */
import { readFileSync } from "node:fs";
import { parse } from "yaml";
import { ErrorKinds, ServiceError, unavailable } from "../../src/platform/base/errors.ts";
import type { HttpObserver } from "../../src/platform/base/observers.ts";
import { type Binding, bindContract, notFound } from "../../src/platform/openapi/bind.ts";
import {
  type ContractDocument,
  type ContractTexts,
  loadContract,
} from "../../src/platform/openapi/document.ts";
import type { Handlers } from "../../src/platform/openapi/handlers.ts";
import { type CapturedLog, captureLog } from "./captured-log.ts";
import { type ServedApp, serveApp } from "./http-app.ts";

const yaml = readFileSync(new URL("./contracts/sample.yaml", import.meta.url), "utf8");
export const sampleTexts: ContractTexts = { yaml, json: JSON.stringify(parse(yaml)) };

interface Answered<Body, Headers = Record<never, never>> {
  headers: { "X-Request-Id": string } & Headers;
  content: { "application/json": Body };
}
type Echo = Record<string, unknown>;
interface Places<Path = undefined, Query = undefined> {
  path: Path;
  query?: Query;
}
interface ItemQuery {
  page?: number;
  ratio?: number;
  deep?: boolean;
  text?: string;
  sort?: string[];
}
interface Body<MediaType extends string, Value> {
  content: { [Type in MediaType]: Value };
}

/** As openapi-typescript would say it; of `behave` it says more than the document, so that it can be broken. */
export interface SampleOperations {
  listItems: { parameters: Places<undefined, ItemQuery>; responses: { 200: Answered<Echo> } };
  createItem: {
    parameters: Places;
    requestBody: Body<"application/json", { name: string; size?: number; data?: unknown }>;
    responses: { 201: Answered<Echo, { "Cache-Control": "no-store"; Location: string }> };
  };
  getItem: { parameters: Places<{ id: string }>; responses: { 200: Answered<Echo> } };
  deleteItem: {
    parameters: Places<{ id: string }>;
    requestBody?: Body<"application/json", { reason: string }>;
    responses: { 200: Answered<Echo> };
  };
  getLatestItem: { parameters: Places; responses: { 200: Answered<Echo> } };
  getNumber: { parameters: Places<{ number: number }>; responses: { 200: Answered<Echo> } };
  makeToken: {
    parameters: Places;
    requestBody: Body<"application/x-www-form-urlencoded", { grant: string; scope?: string }>;
    responses: { 200: Answered<Echo, { Pragma: "no-cache" }> };
  };
  getSecret: { parameters: Places; responses: { 200: Answered<Echo> } };
  getParcel: { parameters: Places; responses: { 200: Answered<Echo> } };
  behave: {
    parameters: Places<{ name: string }>;
    responses: {
      200: { headers: { [name: `X-${string}`]: string }; content: { "application/json": unknown } };
      202: { headers: Record<never, never> };
    };
  };
}

type Behaviour = Awaited<ReturnType<Handlers<SampleOperations, string>["behave"]>>;

/** What a handler may do wrong, by name. */
const behaviours: Readonly<Record<string, () => Behaviour>> = {
  good: () => greeting({ greeting: "hello" }, { "X-Mood": "fine" }),
  "undeclared-status": () => ({ status: 202 }),
  "missing-header": () => greeting({ greeting: "hello" }, {}),
  "undeclared-header": () => greeting({ greeting: "hello" }, { "X-Mood": "fine", "X-More": "1" }),
  "wrong-body": () => greeting({ greeting: 1 }, { "X-Mood": "fine" }),
  "undeclared-member": () => greeting({ greeting: "hello", mood: "fine" }, { "X-Mood": "fine" }),
  "no-body": () => greeting(undefined, { "X-Mood": "fine" }),
  "no-json": () => greeting({ greeting: 1n }, { "X-Mood": "fine" }),
  "undeclared-error": () => {
    throw new ServiceError(ErrorKinds.forbidden, "The document has no 403.");
  },
  defect: () => {
    throw new Error("relation account_numbers does not exist");
  },
  away: () => {
    throw unavailable("The ledger", new Error("connect ECONNREFUSED 10.0.0.7:5432"), 7);
  },
};

function greeting(body: unknown, headers: Record<`X-${string}`, string>): Behaviour {
  return { status: 200, body, headers };
}

/** Handlers that answer what they got. */
export const sampleHandlers: Handlers<SampleOperations, string> = {
  listItems: async ({ query }, { header }) => ({ status: 200, body: { query, offset: header("x-offset") } }),
  createItem: async ({ body }) => ({ status: 201, headers: { Location: "/1" }, body: { got: body } }),
  getItem: async ({ path }) => ({ status: 200, body: { path } }),
  deleteItem: async ({ path, body }) => ({ status: 200, body: { path, got: body } }),
  getLatestItem: async () => ({ status: 200, body: { latest: true } }),
  getNumber: async ({ path }) => ({ status: 200, body: { path } }),
  makeToken: async ({ body }) => ({ status: 200, body: { got: body } }),
  getSecret: async (_request, { caller, context }) => ({
    status: 200,
    body: { caller, traceparent: context.traceparent },
  }),
  getParcel: async (_request, { caller }) => ({ status: 200, body: { caller } }),
  behave: async ({ path: { name } }) => {
    const behaviour = behaviours[name];
    if (!behaviour) throw new Error(`no behaviour ${name}`);
    return behaviour();
  },
};

/**
 * Each scheme takes one header's value for the caller's name; `Badge` refuses the stolen one outright, and
 * `Bearer` the one who may not.
 */
export const sampleSecurity: Binding<SampleOperations, string>["security"] = {
  Key: async ({ header }) => (header("x-key") === "right" ? "key" : undefined),
  Badge: async ({ header }) => {
    if (header("x-badge") === "stolen") throw new ServiceError(ErrorKinds.tooManyRequests, "No more.");
    return header("x-badge") === "right" ? "badge" : undefined;
  },
  Bearer: async ({ header }) => {
    if (header("authorization") === "Bearer other") throw new ServiceError(ErrorKinds.forbidden, "Not you.");
    return header("authorization") === "Bearer right" ? "bearer" : undefined;
  },
};

type Completed = Parameters<HttpObserver["completed"]>[0];

export interface SampleApi extends ServedApp {
  /** With /api/sample. */
  readonly base: string;
  readonly document: ContractDocument;
  readonly log: CapturedLog;
  /** What the observer was told. */
  readonly completed: Completed[];
}

/** What binds the document to the handlers above. */
export const sampleBinding = (document: ContractDocument, logger = captureLog().logger) => ({
  service: "sample",
  document,
  handlers: sampleHandlers,
  security: sampleSecurity,
  logger,
  observer: { serves() {}, completed() {} },
  validateResponses: true,
});

/** @param overrides parts of the binding that a test wants otherwise */
export async function startSampleApi(
  overrides: Partial<Binding<SampleOperations, string>> = {},
): Promise<SampleApi> {
  const log = captureLog();
  const completed: Completed[] = [];
  const document = await loadContract(sampleTexts);
  const { app } = bindContract<SampleOperations, string>({
    ...sampleBinding(document, log.logger),
    observer: { serves() {}, completed: (info) => void completed.push(info) },
    ...overrides,
  });
  app.notFound(notFound(log.logger));
  const served = await serveApp(app);
  return { ...served, base: `${served.origin}/api/sample`, document, log, completed };
}
