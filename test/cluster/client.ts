/**
 * A client that never tries again: HTTP/1.1, Connect and gRPC-Web over connections that are kept, and gRPC over one
 * connection of HTTP/2.
 */
import { Agent, request } from "node:http";
import { type ClientHttp2Session, connect } from "node:http2";
import { text } from "node:stream/consumers";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import {
  IntrospectionService,
  IntrospectRequestSchema,
  IntrospectResponseSchema,
} from "../../gen/proto/auth/v1/introspection_pb.ts";
import { envelope } from "../support/grpc-client.ts";

/** What came of a request; a status of 0 is no response at all. */
export interface Reply {
  readonly status: number;
  readonly body: string;
}

export interface HttpCall {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  readonly path: string;
  /** The `Authorization` header. */
  readonly as?: string;
  readonly form?: Readonly<Record<string, string>>;
  readonly json?: object;
}

/** Ways to introspect that are not the form of RFC 7662. */
export const protocols = ["gRPC", "gRPC-Web", "Connect"] as const;
export type Protocol = (typeof protocols)[number];

const introspectPath = `/${IntrospectionService.typeName}/${IntrospectionService.method.introspect.name}`;

export class Client {
  readonly #agent = new Agent({ keepAlive: true });
  readonly #origin: string;
  readonly #session: ClientHttp2Session;
  readonly #overHttp;

  /** @param origin of HTTP @param grpc host:port of native gRPC */
  constructor(origin: string, grpc: string) {
    this.#origin = origin;
    this.#session = connect(`http://${grpc}`);
    // Each of its calls fails then, and says so.
    this.#session.on("error", () => undefined);
    const options = { baseUrl: origin, httpVersion: "1.1", nodeOptions: { agent: this.#agent } } as const;
    this.#overHttp = {
      Connect: createClient(IntrospectionService, createConnectTransport(options)),
      "gRPC-Web": createClient(IntrospectionService, createGrpcWebTransport(options)),
    };
  }

  http({ method, path, as, form, json }: HttpCall): Promise<Reply> {
    const { promise, resolve } = Promise.withResolvers<Reply>();
    const failed = (error: Error) => resolve({ status: 0, body: String(error) });
    const content = form ? new URLSearchParams(form).toString() : json ? JSON.stringify(json) : "";
    const headers = {
      ...(as !== undefined && { authorization: as }),
      ...(content !== "" && {
        "content-type": form ? "application/x-www-form-urlencoded" : "application/json",
        "content-length": Buffer.byteLength(content),
      }),
    };
    const sent = request(`${this.#origin}${path}`, { agent: this.#agent, method, headers });
    sent.on("error", failed);
    sent.on("response", (response) => {
      text(response).then((body) => resolve({ status: response.statusCode ?? 0, body }), failed);
    });
    sent.end(content);
    return promise;
  }

  /** @returns whether the token is active @throws where the call fails */
  async introspect(protocol: Protocol, authorization: string, token: string): Promise<boolean> {
    if (protocol === "gRPC") return this.#overGrpc(authorization, token);
    const { active } = await this.#overHttp[protocol].introspect({ token }, { headers: { authorization } });
    return active;
  }

  #overGrpc(authorization: string, token: string): Promise<boolean> {
    const { promise, resolve, reject } = Promise.withResolvers<boolean>();
    const head = { ":method": "POST", ":path": introspectPath, "content-type": "application/grpc" };
    const stream = this.#session.request({ ...head, te: "trailers", authorization });
    const parts: Buffer[] = [];
    let status = "none";
    let failure = "";
    const read = (fields: Readonly<Record<string, unknown>>) => {
      if (fields["grpc-status"] !== undefined) status = String(fields["grpc-status"]);
    };
    stream.on("response", read);
    stream.on("trailers", read);
    stream.on("data", (part: Buffer) => parts.push(part));
    stream.on("error", (error) => {
      failure = ` ${error}`;
    });
    stream.on("close", () => {
      const message = Buffer.concat(parts).subarray(5);
      if (status === "0") resolve(fromBinary(IntrospectResponseSchema, message).active);
      else reject(new Error(`status ${status}${failure}`));
    });
    stream.end(envelope(toBinary(IntrospectRequestSchema, create(IntrospectRequestSchema, { token }))));
    return promise;
  }

  close(): void {
    this.#agent.destroy();
    this.#session.close();
  }
}
