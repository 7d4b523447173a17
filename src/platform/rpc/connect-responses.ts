/** Responses to requests on RPC paths that are not calls, in the format of the caller's protocol. */
import { Code, ConnectError } from "@connectrpc/connect";
import { codeToString } from "@connectrpc/connect/protocol-connect";
import type { CorsPolicy } from "../door/cors-policy.ts";
import type { NodeRequest, NodeResponse } from "../door/responding.ts";

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

interface WholeResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | number>>;
  readonly body: Buffer;
}

/** An error in the format of the content type's protocol, else a 415. @param httpStatus of a unary one over Connect */
export function errorResponse(
  {
    contentType = "",
    method,
  }: { readonly contentType: string | undefined; readonly method: string | undefined },
  { code, rawMessage, metadata }: ConnectError,
  httpStatus: number,
): WholeResponse {
  const type = contentType.split(";", 1)[0]?.trim().toLowerCase() ?? "";
  const error = { code: codeToString(code), message: rawMessage };
  const headers = Object.fromEntries(metadata);
  if (/^application\/grpc(-web)?(-text)?(\+(proto|json))?$/.test(type)) {
    const trailers = { "grpc-status": code, "grpc-message": encodeURIComponent(rawMessage) };
    return { status: 200, headers: { "content-type": type, ...trailers, ...headers }, body: Buffer.alloc(0) };
  }
  if (/^application\/connect\+(proto|json)$/.test(type)) {
    return { status: 200, headers: { "content-type": type, ...headers }, body: endOfStream({ error }) };
  }
  const isUnary = /^application\/(proto|json)$/.test(type) || method === "GET";
  const status = isUnary ? httpStatus : 415;
  const body = Buffer.from(JSON.stringify(error));
  return { status, headers: { "content-type": "application/json", ...headers }, body };
}

/** Responds with an error, without a call. @param httpStatus of a unary response over Connect */
export function sendStatus(
  { method, headers: { "content-type": contentType } }: NodeRequest,
  response: NodeResponse,
  error: ConnectError,
  httpStatus: number,
): void {
  const { status, headers, body } = errorResponse({ contentType, method }, error, httpStatus);
  send(response, status, headers, body);
}

export function send(
  response: NodeResponse,
  status: number,
  headers: Readonly<Record<string, string | number>> = {},
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
