/** What loads ask for, over each protocol. Requests are made before the clock runs; every response is checked. */
import { create, toBinary } from "@bufbuild/protobuf";
import { IntrospectRequestSchema } from "../../gen/proto/auth/v1/introspection_pb.ts";
import { introspectPath, tokensPath } from "./product.ts";
import { openConnections, openStreams, type Slot } from "./slots.ts";

/**
 * How is asked, and with which file: one of form bodies for `http`, and for `http-any`, where tokens need not be active;
 * else one of access tokens. What begins with `api-` asks an API that is protected by them.
 */
export type Protocol =
  | "http"
  | "http-any"
  | "grpc"
  | "connect"
  | "connect-h2c"
  | "connect-tls"
  | "api-http"
  | "api-connect"
  | "api-grpc";

export interface Load {
  readonly requests: readonly Buffer[];
  /** @param inFlight requests at a time, at most; a multiple of 256 if there are more */
  open(inFlight: number): Promise<readonly Slot[]>;
  /** Whether the body is what was asked for. */
  isWhole(body: string): boolean;
}

const rpcPath = "/auth.v1.IntrospectionService/Introspect";
/** The first field of a message that says that the token is active. */
const activeField = "\x08\x01";

/** @throws if there is no such protocol */
export function loadOf(
  protocol: string,
  port: number,
  authorization: string,
  lines: readonly string[],
): Load {
  const target = { port, authorization };
  switch (protocol) {
    case "http":
    case "http-any": {
      const isIntrospection = lines[0]?.startsWith("token=") ?? false;
      const path = isIntrospection ? introspectPath : tokensPath;
      const active = protocol === "http" ? '"active":true' : '"active":';
      const expected = isIntrospection ? active : '"access_token"';
      return {
        requests: lines.map((body) => formRequest({ ...target, path }, body)),
        open: (inFlight) => openConnections(port, inFlight),
        isWhole: (body) => body.includes(expected),
      };
    }
    case "connect":
      return {
        requests: lines.map((token) =>
          post({ ...target, path: rpcPath }, "application/proto", messageOf(token)),
        ),
        open: (inFlight) => openConnections(port, inFlight),
        isWhole: (body) => body.startsWith(activeField),
      };
    case "connect-h2c":
    case "connect-tls": {
      const origin = `${protocol === "connect-tls" ? "https" : "http"}://127.0.0.1:${port}`;
      const head = headOf(origin, authorization, ["content-type", "application/proto"]);
      return {
        requests: lines.map(messageOf),
        open: (inFlight) => openStreams(origin, head, inFlight),
        isWhole: (body) => body.startsWith(activeField),
      };
    }
    case "grpc": {
      const origin = `http://127.0.0.1:${port}`;
      const head = headOf(origin, authorization, [
        "content-type",
        "application/grpc+proto",
        "te",
        "trailers",
      ]);
      return {
        requests: lines.map((token) => prefixed(messageOf(token))),
        open: (inFlight) => openStreams(origin, head, inFlight),
        // One message, which is not compressed.
        isWhole: (body) =>
          body.startsWith(activeField, 5) &&
          Buffer.from(body.slice(0, 5), "latin1").readUIntBE(0, 5) === body.length - 5,
      };
    }
    case "api-http":
      return {
        requests: lines.map((token) => get({ port, path: "/", authorization: `Bearer ${token}` })),
        open: (inFlight) => openConnections(port, inFlight),
        isWhole: (body) => body.startsWith("user-"),
      };
    case "api-connect": {
      const path = "/grpc.health.v1.Health/Check";
      return {
        requests: lines.map((token) =>
          post({ port, path, authorization: `Bearer ${token}` }, "application/json", Buffer.from("{}")),
        ),
        open: (inFlight) => openConnections(port, inFlight),
        isWhole: (body) => body.includes('"SERVING"'),
      };
    }
    case "api-grpc": {
      const origin = `http://127.0.0.1:${port}`;
      const fields = ["content-type", "application/grpc+proto", "te", "trailers"];
      const path = "/orders.v1.Orders/WhoAmI";
      // One token: a connection has one head for all of its requests.
      const head = { ...headOf(origin, `Bearer ${lines[0]}`, fields), path };
      return {
        requests: [prefixed(Buffer.alloc(0))],
        open: (inFlight) => openStreams(origin, head, inFlight),
        isWhole: (body) => body.startsWith("user-", 5),
      };
    }
    default:
      throw new Error(`There is no load for ${protocol}.`);
  }
}

interface Target {
  readonly port: number;
  readonly path: string;
  readonly authorization: string;
  /** Of a client without a secret, in place of the authorization. */
  readonly proof?: string | undefined;
}

/** A request of HTTP/1.1 with a form, as bytes. */
export function formRequest(target: Target, form: string): Buffer {
  return post(target, "application/x-www-form-urlencoded", Buffer.from(form));
}

/** The form that refreshes what a response grants. */
export function refreshOf(body: string): string | undefined {
  const token = /"refresh_token":"([^"]+)"/.exec(body)?.[1];
  return token === undefined ? undefined : `grant_type=refresh_token&refresh_token=${token}`;
}

function get({ port, path, authorization }: Target): Buffer {
  return Buffer.from(
    `GET ${path} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nAuthorization: ${authorization}\r\n\r\n`,
  );
}

function post({ port, path, authorization, proof }: Target, type: string, body: Uint8Array): Buffer {
  const caller = proof === undefined ? `Authorization: ${authorization}` : `DPoP: ${proof}`;
  const head =
    `POST ${path} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n${caller}\r\n` +
    `Content-Type: ${type}\r\nContent-Length: ${body.length}\r\n\r\n`;
  return Buffer.concat([Buffer.from(head), body]);
}

function headOf(origin: string, authorization: string, fields: readonly string[]) {
  const { protocol, host } = new URL(origin);
  const target = [":method", "POST", ":scheme", protocol.slice(0, -1), ":authority", host];
  return { path: rpcPath, shared: [...target, ...fields, "authorization", authorization] };
}

function messageOf(token: string): Buffer {
  return Buffer.from(toBinary(IntrospectRequestSchema, create(IntrospectRequestSchema, { token })));
}

function prefixed(message: Buffer): Buffer {
  const prefix = Buffer.alloc(5);
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}
