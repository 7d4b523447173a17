/**
 * Introspection as each kind of caller asks: HTTP, native gRPC with the proto file, and the clients of
 * Connect in every protocol. Each answer in one form, so that they can be compared.
 */

import { fileURLToPath } from "node:url";
import { toJson } from "@bufbuild/protobuf";
import { ConnectError, createClient, type Transport } from "@connectrpc/connect";
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from "@connectrpc/connect-node";
import { Client, credentials, Metadata } from "@grpc/grpc-js";
import { loadSync, type ServiceDefinition } from "@grpc/proto-loader";
import { IntrospectionService, IntrospectResponseSchema } from "../../gen/proto/auth/v1/introspection_pb.ts";
import { internal } from "./auth-api.ts";
import type { AuthServer } from "./auth-server.ts";

/** An answer in the form of proto JSON: times are strings, and what is empty is left out; `active` is always there. */
export type Answer = Readonly<Record<string, unknown>> & { readonly active: boolean };

/** Headers, or metadata, in lower case. */
export type Headers = Readonly<Record<string, string>>;

export interface Introspector {
  readonly protocol: string;
  /**
   * Asks, as the internal client unless told otherwise.
   * @throws the protocol's error; over HTTP, an {@link HttpError}
   */
  ask(token: string, options?: { headers?: Headers; hint?: string }): Promise<Answer>;
  close(): void;
}

/** An answer over HTTP that is not 200. */
export class HttpError extends Error {
  readonly status: number;
  constructor(status: number, body: string) {
    super(`${status} ${body}`);
    this.status = status;
  }
}

const asInternal: Headers = { authorization: internal };

export function overHttp({ base }: AuthServer): Introspector {
  return {
    protocol: "HTTP",
    async ask(token, { headers = asInternal, hint } = {}) {
      const body = new URLSearchParams({ token, ...(hint !== undefined && { token_type_hint: hint }) });
      const response = await fetch(`${base}/oauth2/v1/introspect`, { method: "POST", headers, body });
      const text = await response.text();
      if (response.status !== 200) throw new HttpError(response.status, text);
      const { client_id: _, token_type: __, nbf, exp, iat, ...rest } = JSON.parse(text);
      return rest.active ? { ...rest, nbf: String(nbf), exp: String(exp), iat: String(iat) } : rest;
    },
    close: () => undefined,
  };
}

function isService(definition: object | undefined): definition is ServiceDefinition {
  return definition !== undefined && !("format" in definition);
}

/** The library that most gRPC callers on Node use, with nothing but the proto file. */
export function overNativeGrpc({ grpc }: AuthServer): Introspector {
  const file = fileURLToPath(new URL("../../proto/auth/v1/introspection.proto", import.meta.url));
  const service = loadSync(file)["auth.v1.IntrospectionService"];
  const method = isService(service) ? service["Introspect"] : undefined;
  if (!method) throw new Error("the proto file has no such method");
  const client = new Client(grpc, credentials.createInsecure());
  return {
    protocol: "gRPC by grpc-js",
    ask: (token, { headers = asInternal, hint } = {}) =>
      new Promise((resolve, reject) => {
        const metadata = new Metadata();
        for (const [name, value] of Object.entries(headers)) metadata.set(name, value);
        client.makeUnaryRequest(
          method.path,
          method.requestSerialize,
          method.responseDeserialize,
          { token, ...(hint !== undefined && { tokenTypeHint: hint }) },
          metadata,
          (error, answer) => (error ? reject(error) : resolve({ active: false, ...answer })),
        );
      }),
    close: () => client.close(),
  };
}

function members(json: unknown): object {
  return typeof json === "object" && json !== null ? json : {};
}

function overTransport(protocol: string, transport: Transport): Introspector {
  const client = createClient(IntrospectionService, transport);
  return {
    protocol,
    async ask(token, { headers = asInternal, hint = "" } = {}) {
      const request = { token, tokenTypeHint: hint };
      const answer = await client.introspect(request, { headers: { ...headers } });
      return { active: false, ...members(toJson(IntrospectResponseSchema, answer)) };
    },
    close: () => undefined,
  };
}

export function overConnect({ origin }: AuthServer, format: "binary" | "JSON" = "binary"): Introspector {
  const useBinaryFormat = format === "binary";
  const transport = createConnectTransport({ baseUrl: origin, httpVersion: "1.1", useBinaryFormat });
  return overTransport(`Connect, ${format}`, transport);
}

/** All of them. */
export function introspectors(server: AuthServer): readonly Introspector[] {
  const { origin, grpc } = server;
  return [
    overHttp(server),
    overNativeGrpc(server),
    overTransport("gRPC by connect-node", createGrpcTransport({ baseUrl: `http://${grpc}` })),
    overTransport("gRPC-Web", createGrpcWebTransport({ baseUrl: origin, httpVersion: "1.1" })),
    overConnect(server),
    overConnect(server, "JSON"),
  ];
}

/** gRPC statuses, in the words of each kind of caller. */
const statuses = { 400: 13, 401: 16, 503: 14 };

/** How a question is refused, as an HTTP status whatever the protocol. */
export async function refusal(asking: Promise<unknown>): Promise<number> {
  const error = await asking.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  if (error instanceof HttpError) return error.status;
  const code = error instanceof ConnectError || hasCode(error) ? error.code : undefined;
  const found = Object.entries(statuses).find(([, grpc]) => grpc === code);
  if (!found) throw new Error("it was answered, or refused in an unknown way", { cause: error });
  return Number(found[0]);
}

function hasCode(error: unknown): error is Error & { code: unknown } {
  return error instanceof Error && "code" in error;
}
