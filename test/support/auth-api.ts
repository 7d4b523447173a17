/** Calls of the auth API as tests make them: real requests, every response held against the document. */
import { randomInt, randomUUID } from "node:crypto";
import { expect } from "vitest";
import type { components } from "../../gen/openapi/auth.ts";
import { type Contract, readContract } from "./contract-check.ts";

type Schemas = components["schemas"];
export type TokenPair = Schemas["TokenPair"];

/** Basic credentials. */
export function basic(id: string, secret: string): string {
  return `Basic ${Buffer.from(`${id}:${secret}`).toString("base64")}`;
}
export const internal = basic("internal", "internal-dev-secret");
export const mobileApp = basic("mobile-app", "mobile-app-dev-secret");
export const backoffice = basic("backoffice", "backoffice-dev-secret");

export interface CallOptions {
  /** Authorization header. */
  as?: string;
  path?: Record<string, string>;
  query?: string;
  /** Sent as JSON. */
  json?: unknown;
  /** Sent as a form. */
  form?: Record<string, string> | string;
  /** Sent as it is. */
  raw?: string | Uint8Array | ReadableStream<Uint8Array>;
  headers?: Record<string, string>;
  /** Instead of the operation's. */
  method?: string;
}

/** A response that the document allows, read. */
export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  readonly body: unknown;
}

export interface AuthApi {
  readonly contract: Contract;
  /** Calls an operation by its id; fails if the response is not what the document says. */
  call(operationId: string, options?: CallOptions): Promise<Answer>;
  /** Creates an identity with values that nobody else has. */
  newIdentity(fields?: Partial<Schemas["NewIdentity"]>): Promise<{ id: string; phone: string }>;
  /** A pair for the identity by grant_type=auth. */
  newPair(authId: string, as?: string): Promise<TokenPair>;
  token(form: Record<string, string>, as?: string): Promise<Answer>;
  refresh(refreshToken: string, as?: string): Promise<Answer>;
  introspect(token: string): Promise<Schemas["Introspection"]>;
}

/** A phone number that is possible and that no other test has. */
export function newPhone(): string {
  return `+1${randomInt(201, 989)}${randomInt(201, 989)}${String(randomInt(10_000)).padStart(4, "0")}`;
}

/** @param base URL of the API, with /api/auth */
export function authApi(base: string, contract: Contract = readContract("auth")): AuthApi {
  const origin = new URL(base).origin;
  const operations = new Map(contract.operations.map((operation) => [operation.id, operation]));

  async function call(operationId: string, options: CallOptions = {}): Promise<Answer> {
    const operation = operations.get(operationId);
    if (!operation) throw new Error(`no operation ${operationId}`);
    const path = operation.path.replace(/\{(\w+)\}/g, (_, name: string) =>
      encodeURIComponent(options.path?.[name] ?? ""),
    );
    const headers: Record<string, string> = {
      ...(options.as !== undefined && { authorization: options.as }),
    };
    let body = options.raw;
    if (options.json !== undefined) {
      headers["content-type"] = "application/json";
      body = JSON.stringify(options.json);
    } else if (options.form !== undefined) {
      headers["content-type"] = "application/x-www-form-urlencoded";
      body = new URLSearchParams(options.form).toString();
    }
    const response = await fetch(`${origin}${path}${options.query ?? ""}`, {
      method: options.method ?? operation.method,
      headers: { ...headers, ...options.headers },
      ...(body !== undefined && { body, duplex: "half" }),
    });
    const text = await response.text();
    contract.check(operationId, response, text);
    const isJson = response.headers.get("content-type")?.includes("json");
    return {
      status: response.status,
      headers: response.headers,
      text,
      body: isJson ? JSON.parse(text) : undefined,
    };
  }

  async function ok<T>(answer: Promise<Answer>): Promise<T> {
    const { status, text, body } = await answer;
    expect(status, text).toBe(200);
    return body as T;
  }

  const api: AuthApi = {
    contract,
    call,
    async newIdentity(fields = {}) {
      const json = { id: randomUUID(), phone: newPhone(), ...fields };
      return ok(call("createIdentity", { as: internal, json }));
    },
    newPair: (auth_id, as) => ok(api.token({ grant_type: "auth", auth_id }, as)),
    token: (form, as = mobileApp) => call("generateTokens", { as, form }),
    refresh: (refresh_token, as) => api.token({ grant_type: "refresh_token", refresh_token }, as),
    introspect: (token) => ok(call("introspectToken", { as: internal, form: { token } })),
  };
  return api;
}
