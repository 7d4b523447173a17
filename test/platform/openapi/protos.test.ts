/** The protos as a client gets them that has nothing but the address of a running server. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { loadFileDescriptorSetFromBuffer } from "@grpc/proto-loader";
import { beforeAll, expect, it } from "vitest";
import { createAccount, revoke, signIn } from "../../clients/accounts.ts";
import { basic } from "../../support/auth-api.ts";
import { GrpcClient, methodOf } from "../../support/grpc-client.ts";
import { root } from "../../support/program.ts";
import { type Server, startOwnServer } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

interface Index {
  readonly asyncapi: string;
  readonly protos: { readonly descriptorSet: string; readonly files: readonly string[] };
}

const internal = { authorization: basic("internal", "internal-dev-secret") };
const cleanup = suiteCleanup();
let server: Server;
beforeAll(async () => {
  server = await startOwnServer("PGlite");
  cleanup.defer(() => server.stop());
});

const get = (path: string) => fetch(`${server.origin}${path}`);

async function indexOf(basePath: string): Promise<Index["protos"]> {
  const index = (await (await get(basePath)).json()) as Index;
  return index.protos;
}

async function definitionOf(basePath: string) {
  const { descriptorSet } = await indexOf(basePath);
  const response = await get(descriptorSet);
  expect(response.headers.get("content-type")).toBe("application/protobuf");
  return loadFileDescriptorSetFromBuffer(Buffer.from(await response.arrayBuffer()), { defaults: true });
}

it.each([
  ["/api/auth", ["auth/v1/events.proto", "auth/v1/introspection.proto"]],
  [
    "/api/push-orchestration",
    ["push/v1/delivery.proto", "push/v1/events.proto", "push/v1/notifications.proto"],
  ],
])("%s has its protos as they are written", async (basePath, files) => {
  const links = await indexOf(basePath);
  expect(links.files).toEqual(files.map((file) => `${basePath}/protos/${file}`));
  for (const file of files) {
    const response = await get(`${basePath}/protos/${file}`);
    expect(response.headers.get("content-type")).toBe("text/plain; charset=utf-8");
    expect(await response.text()).toBe(readFileSync(join(root, "proto", file), "utf8"));
  }
});

it.each([
  ["/api/auth", "auth"],
  ["/api/push-orchestration", "push"],
])("%s has the AsyncAPI document of its events", async (basePath, name) => {
  const { asyncapi } = (await (await get(basePath)).json()) as Index;
  const response = await get(asyncapi);
  expect(response.headers.get("content-type")).toBe("application/vnd.aai.asyncapi+json;version=3.0.0");
  expect(await response.text()).toBe(readFileSync(join(root, `gen/asyncapi/${name}.json`), "utf8"));
});

it("a client made from the descriptor set alone introspects", async () => {
  const definition = await definitionOf("/api/auth");
  const client = new GrpcClient(Number(server.grpc.split(":")[1]));
  cleanup.defer(() => client.close());
  const introspect = methodOf(definition, "auth.v1.IntrospectionService", "Introspect");
  const authUrl = `${server.origin}/api/auth`;
  const account = await createAccount(authUrl);
  const { access_token: token } = await signIn(authUrl, account, "backend");
  const answer = await client.unary(introspect, { token }, internal);
  expect(answer).toMatchObject({ active: true, sub: account.user });
  await revoke(authUrl, "backend", token);
  expect(await client.unary(introspect, { token }, internal)).toMatchObject({ active: false, sub: "" });
  await expect(client.unary(introspect, { token })).rejects.toThrow("UNAUTHENTICATED");
});

it("a descriptor set has every service and event", async () => {
  const names = new Set([
    ...Object.keys(await definitionOf("/api/auth")),
    ...Object.keys(await definitionOf("/api/push-orchestration")),
  ]);
  for (const name of [
    "auth.v1.IntrospectionService",
    "auth.v1.IdentityDeleted",
    "push.v1.DeliveryService",
    "push.v1.PushTokenRegistered",
  ]) {
    expect(names).toContain(name);
  }
});
