/** Responses to what reaches the gRPC port and is no call of gRPC. */
import type { ConnectError } from "@connectrpc/connect";
import { codeToString } from "@connectrpc/connect/protocol-connect";
import { envelope } from "./messages.ts";

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
    const body = envelope(2, Buffer.from(JSON.stringify({ error })));
    return { status: 200, headers: { "content-type": type, ...headers }, body };
  }
  const isUnary = /^application\/(proto|json)$/.test(type) || method === "GET";
  const status = isUnary ? httpStatus : 415;
  const body = Buffer.from(JSON.stringify(error));
  return { status, headers: { "content-type": "application/json", ...headers }, body };
}
