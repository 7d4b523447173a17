/** Clients for the fakes, independent of their code: HTTP/2 requests, and the tokens that a sender has to sign. */
import { createPrivateKey, randomUUID } from "node:crypto";
import { once } from "node:events";
import {
  type ClientHttp2Session,
  connect,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
} from "node:http2";
import { importPKCS8, SignJWT } from "jose";
import { onTestFinished } from "vitest";
import type {
  ApnsCredentials,
  ServiceAccount,
  VapidCredentials,
} from "../../../src/development/provider-fakes/credentials.ts";

export interface Response {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

/** An HTTP/2 connection that the test's end closes. */
export function session(origin: string, options: { ca?: string } = {}): ClientHttp2Session {
  const client = connect(origin, options);
  client.on("error", () => undefined);
  onTestFinished(() => client.destroy());
  return client;
}

/** @throws if the stream ends without a response */
export async function send(
  client: ClientHttp2Session,
  headers: OutgoingHttpHeaders,
  body: string | Buffer = "",
): Promise<Response> {
  const stream = client.request(headers, { endStream: false });
  stream.end(body);
  const answered = Promise.withResolvers<IncomingHttpHeaders>();
  stream.once("response", answered.resolve);
  stream.once("error", answered.reject);
  stream.once("close", () => answered.reject(new Error(`no answer, code ${stream.rstCode}`)));
  const head = await answered.promise;
  const chunks: Buffer[] = [];
  stream.on("data", (chunk: Buffer) => chunks.push(chunk));
  if (!stream.readableEnded) await once(stream, "end");
  return { status: Number(head[":status"]), headers: head, text: Buffer.concat(chunks).toString() };
}

export const seconds = (): number => Math.floor(Date.now() / 1000);

/** The claims of a valid assertion. */
export function assertionClaims(account: ServiceAccount): Record<string, unknown> {
  return {
    iss: account.client_email,
    aud: account.token_uri,
    scope: "https://www.googleapis.com/auth/firebase.messaging",
    iat: seconds(),
    exp: seconds() + 3600,
  };
}

export async function assertion(
  account: ServiceAccount,
  claims: Record<string, unknown> = assertionClaims(account),
  privateKey: string = account.private_key,
): Promise<string> {
  return new SignJWT(claims)
    .setProtectedHeader({ alg: "RS256", kid: account.private_key_id })
    .sign(await importPKCS8(privateKey, "RS256"));
}

/** Over HTTP/1.1. */
export async function postAssertion(uri: string, text: string): Promise<globalThis.Response> {
  const grant = "urn:ietf:params:oauth:grant-type:jwt-bearer";
  return fetch(uri, { method: "POST", body: new URLSearchParams({ grant_type: grant, assertion: text }) });
}

export async function accessToken(account: ServiceAccount): Promise<string> {
  const response = await postAssertion(account.token_uri, await assertion(account));
  const { access_token } = (await response.json()) as { access_token: string };
  return access_token;
}

export async function providerToken(
  credentials: ApnsCredentials,
  claims: Record<string, unknown> = {},
  kid: string = credentials.keyId,
): Promise<string> {
  return new SignJWT({ iss: credentials.teamId, iat: seconds(), ...claims })
    .setProtectedHeader({ alg: "ES256", kid })
    .sign(await importPKCS8(credentials.privateKey, "ES256"));
}

/** The value of Authorization. */
export async function vapid(
  credentials: VapidCredentials,
  audience: string,
  claims: Record<string, unknown> = {},
): Promise<string> {
  const point = Buffer.from(credentials.publicKey, "base64url");
  const key = createPrivateKey({
    format: "jwk",
    key: {
      kty: "EC",
      crv: "P-256",
      d: credentials.privateKey,
      x: point.subarray(1, 33).toString("base64url"),
      y: point.subarray(33).toString("base64url"),
    },
  });
  const token = await new SignJWT({
    aud: audience,
    exp: seconds() + 3600,
    sub: credentials.subject,
    ...claims,
  })
    .setProtectedHeader({ alg: "ES256", typ: "JWT" })
    .sign(key);
  return `vapid t=${token}, k=${credentials.publicKey}`;
}

/** A message that FCM accepts. */
export function fcmMessage(token: string, messageId: string = randomUUID(), tag = "notification-1") {
  return {
    token,
    notification: { title: "Hello", body: "World" },
    data: { messageId },
    android: { ttl: "3600s", priority: "high", notification: { tag } },
  };
}
