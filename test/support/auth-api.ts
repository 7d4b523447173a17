/** Calls of the auth API as tests make them: real requests, every response held against the document. */
import { randomInt, randomUUID } from "node:crypto";
import { expect } from "vitest";
import type { components } from "../../gen/openapi/auth.ts";
import { type Answer, type CallOptions, type ContractCall, contractCall } from "./contract-api.ts";
import { type Contract, readContract } from "./contract-check.ts";

export type { Answer, CallOptions };

type Schemas = components["schemas"];
export type TokenPair = Schemas["TokenPair"];

/** What a retry of a refresh gets: the same pair, with what is left of its lifetimes by then. */
export function lasting(pair: TokenPair) {
  const leftOf = (seconds: number): unknown =>
    expect.toSatisfy(
      (left: unknown) => Number.isInteger(left) && Number(left) > 0 && Number(left) <= seconds,
    );
  return {
    ...pair,
    expires_in: leftOf(pair.expires_in),
    refresh_expires_in: leftOf(pair.refresh_expires_in),
  };
}

/** Basic credentials. */
export function basic(id: string, secret: string): string {
  return `Basic ${Buffer.from(`${id}:${secret}`).toString("base64")}`;
}
export const internal = basic("internal", "internal-dev-secret");
export const mobileApp = basic("backend", "backend-dev-secret");
export const backoffice = basic("backoffice", "backoffice-dev-secret");

export interface AuthApi {
  readonly contract: Contract;
  readonly call: ContractCall;
  /** Creates an identity with values that nobody else has. */
  newIdentity(fields?: Partial<Schemas["IdentityCreation"]>): Promise<{ id: string; phone: string }>;
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

/** Other ways to write a phone number of newPhone. */
export function spellings(phone: string): string[] {
  const [, area, exchange, line] = /^\+1(\d{3})(\d{3})(\d{4})$/.exec(phone) ?? [];
  return [
    `+1 (${area}) ${exchange}-${line}`,
    `+1-${area}-${exchange}-${line}`,
    `+1.${area}.${exchange}.${line}`,
    ` 1${area}${exchange}${line}`,
    ` 1 ${area} ${exchange} ${line}`,
    `1${area}${exchange}${line}`,
    `1 (${area}) ${exchange}-${line}`,
    `001${area}${exchange}${line}`,
    `00 1 ${area} ${exchange} ${line}`,
  ];
}

/** @param base URL of the API, with /api/auth */
export function authApi(base: string, contract: Contract = readContract("auth")): AuthApi {
  const call = contractCall(new URL(base).origin, contract);

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
