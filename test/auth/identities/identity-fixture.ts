/** The operations on identities, as an administrator calls them, for the tests of a file. */
import { randomUUID } from "node:crypto";
import { expect } from "vitest";
import { type Answer, type AuthApi, internal } from "../../support/auth-api.ts";

export function newEmail(): string {
  return `${randomUUID()}@example.com`;
}

/** @param api of the server, which is there once a test runs */
export const identityCalls = (api: () => AuthApi) => ({
  create: (json: unknown) => api().call("createIdentity", { as: internal, json }),
  get: (id: string) => api().call("getIdentity", { as: internal, path: { id } }),
  update: (id: string, json: unknown) => api().call("updateIdentity", { as: internal, path: { id }, json }),
  findBy: (query: string) => api().call("findIdentityByPhone", { as: internal, query }),
});

export async function bodyOf(response: Promise<Answer>): Promise<unknown> {
  const { status, text, body } = await response;
  expect(status, text).toBe(200);
  return body;
}

export async function expectConflict(response: Promise<Answer>, code: string): Promise<void> {
  expect(await response).toMatchObject({ status: 409, body: { code } });
}

/** @param pointer of the first place that is refused */
export async function expectInvalid(response: Promise<Answer>, pointer: string): Promise<void> {
  const { status, body } = await response;
  expect({ status, body }).toMatchObject({ status: 400, body: { code: "invalid_request" } });
  expect(body).toHaveProperty("errors.0.pointer", pointer);
}
