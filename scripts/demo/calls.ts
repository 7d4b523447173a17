/**
 * The calls of the demo. They are real; each is shown, and each response is checked against its contract. HTTP uses
 * openapi-fetch with the types that are generated from the documents. Introspection also goes over gRPC, Connect
 * and gRPC-Web, with the client that is generated from the proto file.
 */
import { type JsonValue, toJson } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient as createRpcClient, type Transport } from "@connectrpc/connect";
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
  Http2SessionManager,
} from "@connectrpc/connect-node";
import { decodeJwt } from "jose";
import createClient, { type Client, type Middleware } from "openapi-fetch";
import type { paths as AuthPaths } from "../../gen/openapi/auth.ts";
import type { paths as OtpPaths } from "../../gen/openapi/otp-verifier.ts";
import type { paths as PushPaths } from "../../gen/openapi/push-orchestration.ts";
import { IntrospectionService, IntrospectResponseSchema } from "../../gen/proto/auth/v1/introspection_pb.ts";
import { DeliveryService, type NotificationProgress } from "../../gen/proto/push/v1/delivery_pb.ts";
import { type Contract, readContract } from "./contract.ts";
import { Mismatch } from "./mismatch.ts";
import { type Body, showCheck, showRequest, showResponse } from "./screen.ts";
import { noteSecret, noteSecretsIn } from "./transcript.ts";

/** The addresses of the server. */
export interface Addresses {
  /** Origin of the HTTP APIs. */
  readonly http: string;
  /** host:port of native gRPC. */
  readonly grpc: string;
}

export const protocols = ["gRPC", "Connect", "gRPC-Web"] as const;
export type Protocol = (typeof protocols)[number];

export interface Calls {
  readonly auth: Client<AuthPaths>;
  readonly otp: Client<OtpPaths>;
  readonly push: Client<PushPaths>;
  /** The response in the JSON format of proto3, without fields that are not set. */
  introspectOver(protocol: Protocol, token: string, authorization: string): Promise<JsonValue>;
  /** The progress of a notification over Connect: a value for each change, until the notification has ended. */
  watchProgress(notificationId: string, authorization: string): AsyncIterable<NotificationProgress>;
  close(): void;
}

/** Milliseconds that a response may take. */
const timeoutMs = 10_000;

export const form = { "content-type": "application/x-www-form-urlencoded" };

/** The Authorization header for these credentials. */
export function basic(clientId: string, secret: string): string {
  noteSecret("client_secret", secret);
  return `Basic ${Buffer.from(`${clientId}:${secret}`).toString("base64")}`;
}

export function createCalls({ http, grpc }: Addresses): Calls {
  const grpcUrl = `${new URL(http).protocol}//${grpc}`;
  const session = new Http2SessionManager(grpcUrl);
  const transports: Record<Protocol, Transport> = {
    gRPC: createGrpcTransport({ baseUrl: grpcUrl, sessionManager: session }),
    Connect: createConnectTransport({ baseUrl: http, httpVersion: "1.1" }),
    "gRPC-Web": createGrpcWebTransport({ baseUrl: http, httpVersion: "1.1" }),
  };

  return {
    auth: withChecks(
      createClient<AuthPaths>({ baseUrl: `${http}/api/auth`, fetch: fetchWithTimeout }),
      "auth",
    ),
    otp: withChecks(
      createClient<OtpPaths>({ baseUrl: `${http}/otp-verifier`, fetch: fetchWithTimeout }),
      "otp-verifier",
    ),
    push: withChecks(
      createClient<PushPaths>({ baseUrl: `${http}/api/push-orchestration`, fetch: fetchWithTimeout }),
      "push-orchestration",
    ),

    async introspectOver(protocol, token, authorization) {
      const { typeName, method } = IntrospectionService;
      const at = protocol === "gRPC" ? grpc : http;
      showRequest({
        line: `${typeName}/${method.introspect.name} over ${protocol}`,
        credentials: credentialsIn(authorization),
        body: { json: { token } },
      });
      const client = createRpcClient(IntrospectionService, transports[protocol]);
      const options = { headers: { authorization }, timeoutMs };
      const response = await client.introspect({ token }, options).catch((thrown: unknown) => {
        const { code, rawMessage } = ConnectError.from(thrown);
        throw new Mismatch(`a response over ${protocol} at ${at}`, `${Code[code]}: ${rawMessage}`);
      });
      const json = toJson(IntrospectResponseSchema, response);
      showResponse({ line: "0 OK", body: { json } });
      if (response.$unknown) throw new Mismatch("fields of auth.v1.IntrospectResponse", "others besides");
      return json;
    },

    async *watchProgress(notificationId, authorization) {
      const { typeName, method } = DeliveryService;
      showRequest({
        line: `${typeName}/${method.watchProgress.name} over Connect`,
        credentials: credentialsIn(authorization),
        body: { json: { notificationId } },
      });
      const client = createRpcClient(DeliveryService, transports.Connect);
      const options = { headers: { authorization }, timeoutMs: 60_000 };
      try {
        for await (const { progress } of client.watchProgress({ notificationId }, options)) {
          if (progress) yield progress;
        }
      } catch (thrown) {
        const { code, rawMessage } = ConnectError.from(thrown);
        throw new Mismatch("progress until the end", `${Code[code]}: ${rawMessage}`);
      }
    },

    close: () => session.abort(),
  };
}

function fetchWithTimeout(request: Request): Promise<Response> {
  return fetch(request, { signal: AbortSignal.timeout(timeoutMs) });
}

function withChecks<Paths extends object>(client: Client<Paths>, document: string): Client<Paths> {
  client.use(checkExchanges(readContract(document)));
  return client;
}

/** Shows each exchange, notes its secrets, and checks the response against the contract. */
function checkExchanges(contract: Contract): Middleware {
  return {
    async onRequest({ request }) {
      const { pathname, search } = new URL(request.url);
      const body = bodyIn(mediaTypeOf(request), await request.clone().text());
      if (body && "json" in body) noteSecretsIn(body.json);
      if (body && "form" in body) noteForm(body.form);
      const authorization = request.headers.get("authorization");
      const credentials = authorization === null ? undefined : credentialsIn(authorization);
      showRequest({ line: `${request.method} ${pathname}${search}`, credentials, body });
    },
    async onResponse({ request, response, schemaPath }) {
      const text = await response.clone().text();
      const mediaType = mediaTypeOf(response);
      const body = bodyIn(mediaType, text);
      if (body && "json" in body) noteSecretsIn(body.json);
      showResponse({ line: `${response.status} ${mediaType || "(no body)"}`, body });
      const { method } = request;
      const { status } = response;
      const operation = contract({ method, path: schemaPath, status, mediaType, body: text });
      showCheck(`as the contract says (${operation}, ${status})`);
    },
    onError({ error, request }) {
      const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
      const got = cause instanceof Error ? cause.message : String(cause);
      return new Mismatch(`a response from ${new URL(request.url).origin}`, got, { cause: error });
    },
  };
}

/**
 * Notes the secrets of a token request. With the grant phone_otp the parameter `password` is a one-time code,
 * which was noted when it was received.
 */
function noteForm(parameters: URLSearchParams): void {
  const { password, ...rest } = Object.fromEntries(parameters);
  noteSecretsIn(rest);
  if (password !== undefined && rest["grant_type"] === "password") noteSecret("password", password);
}

function mediaTypeOf({ headers }: Request | Response): string {
  return (headers.get("content-type") ?? "").split(";", 1)[0]?.trim().toLowerCase() ?? "";
}

function bodyIn(mediaType: string, text: string): Body | undefined {
  if (text === "") return undefined;
  if (mediaType === form["content-type"]) return { form: new URLSearchParams(text) };
  if (!mediaType.endsWith("json")) return { text };
  try {
    return { json: JSON.parse(text) };
  } catch {
    return { text };
  }
}

/** The Authorization header for this access token. */
export function bearer(accessToken: string): string {
  return `Bearer ${accessToken}`;
}

/** The owner of these credentials, without the secret. */
function credentialsIn(authorization: string): string {
  if (authorization.startsWith("Bearer ")) {
    const { sub, client_id } = decodeJwt(authorization.slice("Bearer ".length));
    return `${sub} by ${client_id} (Bearer)`;
  }
  const pair = Buffer.from(authorization.replace(/^Basic /, ""), "base64").toString("utf8");
  return `${pair.slice(0, pair.indexOf(":"))} (HTTP Basic)`;
}
