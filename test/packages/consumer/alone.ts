/** A program of a user who has installed the packages and nothing else. It is compiled, not run. */
import {
  authorizedFetch,
  createAuthClient,
  createPushClient,
  createSession,
  createSignIn,
  memoryStore,
  type OAuthErrorCode,
  type PendingSignIn,
  ProblemError,
  type SessionStore,
  SignedOutError,
  sendNotification,
  serviceToken,
} from "@gatepost/client";
import { browserStorage } from "@gatepost/client/browser";
import { fileSigner, folderStore } from "@gatepost/client/node";
import type { components } from "@gatepost/contracts/auth";
import type { ProblemCode } from "@gatepost/contracts/codes";
import { authOperations } from "@gatepost/contracts/operations";
import type { operations } from "@gatepost/contracts/push";
import { createVerifier, type Outcome } from "@gatepost/verifier";
import { bearer as express } from "@gatepost/verifier/express";
import { bearer as fastify } from "@gatepost/verifier/fastify";
import { bearer as hono } from "@gatepost/verifier/hono";
import { bearer as nodeHttp } from "@gatepost/verifier/node-http";

const authUrl = "https://api.example.com/api/auth";
const credentials = { clientId: "internal", clientSecret: "secret" };

export async function app(): Promise<PendingSignIn> {
  const { store, signer, isPersistent } = await browserStorage();
  const inFiles: SessionStore = folderStore("session");
  const address = {
    authUrl,
    client: { clientId: "app" },
    signer: isPersistent ? signer : await fileSigner("key"),
  };
  const session = createSession({ ...address, store: isPersistent ? store : inFiles });
  const fetch = authorizedFetch({ session, origins: ["https://api.example.com"] });
  await fetch("https://api.example.com/orders");
  return createSignIn({ ...address, session }).begin("+12025550131");
}

export async function backEnd(): Promise<string[]> {
  const auth = createAuthClient({ url: authUrl, credentials });
  const identity: components["schemas"]["Identity"] = await auth.request("getIdentity", {
    path: { id: "u-1" },
  });
  const done: undefined = await auth.request("deleteIdentity", { path: { id: "u-1" } });
  const session = serviceToken({ authUrl, client: credentials });
  const push = createPushClient({ url: authUrl, fetch: authorizedFetch({ session, origins: [authUrl] }) });
  const sent = await sendNotification(push, {
    audience: { users: [identity.id] },
    content: { texts: { en: { title: "Hello", message: "How are you?" } } },
  });
  const ids = [sent.id, String(done), authOperations.createIdentity.path];
  for await (const { id } of push.list("listNotifications", { query: { state: ["SENDING"] } })) ids.push(id);
  return ids;
}

export function wrongCalls(): void {
  const auth = createAuthClient({ url: authUrl });
  // @ts-expect-error The path is needed.
  auth.request("getIdentity");
  // @ts-expect-error There is no such operation.
  auth.request("getIdentities", {});
  // @ts-expect-error It is no list.
  auth.list("getIdentity", { path: { id: "u-1" } });
  // @ts-expect-error A phone is needed.
  auth.request("createIdentity", { body: { id: "u-1" } });
}

export function reasonOf(error: unknown): ProblemCode | OAuthErrorCode | string {
  if (error instanceof ProblemError) return error.code;
  return error instanceof SignedOutError ? error.reason : String(error);
}

export type Query = operations["listNotifications"]["parameters"]["query"];

export function api(): [Promise<Outcome>, ...unknown[]] {
  const verifier = createVerifier({ issuer: authUrl, audience: "orders-api", mode: "keys" });
  const handle = nodeHttp(verifier, (_request, _response, { sub }) => sub);
  const store = memoryStore();
  return [
    verifier.verify("Bearer token"),
    express(verifier),
    fastify(verifier),
    hono(verifier),
    handle,
    store,
  ];
}
