/**
 * Responses to requests on RPC paths that are not calls: to a preflight request, and to a method that the service
 * does not have, in the format of the caller's protocol.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import { Code, ConnectError } from "@connectrpc/connect";
import { codeToString } from "@connectrpc/connect/protocol-connect";
import type { CorsPolicy } from "../base/cors-policy.ts";

/** As node:http and the compatibility API of node:http2 have them. */
export type NodeRequest = IncomingMessage | Http2ServerRequest;
export type NodeResponse = ServerResponse | Http2ServerResponse;

/** Responds to `OPTIONS`, whether it is a preflight request or not. `setCorsHeaders` has run. */
export function sendPreflight(
  request: NodeRequest,
  response: NodeResponse,
  cors: CorsPolicy | undefined,
  allowed: readonly string[],
): void {
  const methods = allowed.join(", ");
  if (request.headers.origin !== undefined && cors?.origins.includes(request.headers.origin)) {
    response.setHeader("access-control-allow-methods", methods);
    response.setHeader("access-control-allow-headers", cors.allowedHeaders.join(","));
    response.setHeader("access-control-max-age", cors.maxAgeSeconds);
  }
  send(response, 204, { allow: `OPTIONS, ${methods}` });
}

export function sendUnknownMethod(request: NodeRequest, response: NodeResponse): void {
  sendStatus(request, response, new ConnectError("The service has no such method.", Code.Unimplemented), 501);
}

/**
 * Responds with an error, without a call.
 * @param httpStatus of a unary response over Connect
 */
export function sendStatus(
  request: NodeRequest,
  response: NodeResponse,
  { code, rawMessage, metadata }: ConnectError,
  httpStatus: number,
): void {
  const type = (request.headers["content-type"] ?? "").split(";", 1)[0]?.trim().toLowerCase() ?? "";
  const error = { code: codeToString(code), message: rawMessage };
  const headers = Object.fromEntries(metadata);
  if (/^application\/grpc(-web)?(-text)?(\+(proto|json))?$/.test(type)) {
    const status = { "grpc-status": code, "grpc-message": encodeURIComponent(rawMessage) };
    send(response, 200, { "content-type": type, ...status, ...headers });
  } else if (/^application\/connect\+(proto|json)$/.test(type)) {
    send(response, 200, { "content-type": type, ...headers }, endOfStream({ error }));
  } else if (/^application\/(proto|json)$/.test(type) || request.method === "GET") {
    const body = Buffer.from(JSON.stringify(error));
    send(response, httpStatus, { "content-type": "application/json", ...headers }, body);
  } else {
    send(response, 415);
  }
}

/** Sends a whole response. */
export function send(
  response: NodeResponse,
  status: number,
  headers: Record<string, string | number> = {},
  body: Buffer = Buffer.alloc(0),
): void {
  response.statusCode = status;
  for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
  response.end(body);
}

/** The last envelope of a stream in the Connect protocol: flag 2, length, JSON. */
function endOfStream(end: object): Buffer {
  const json = Buffer.from(JSON.stringify(end));
  const head = Buffer.alloc(5);
  head.writeUInt8(2, 0);
  head.writeUInt32BE(json.length, 1);
  return Buffer.concat([head, json]);
}
