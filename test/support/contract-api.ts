/** Calls of an API by the ids of its document's operations: real requests, every response held against it. */
import type { Contract } from "./contract-check.ts";

export interface CallOptions {
  /** Authorization header. */
  as?: string;
  path?: Record<string, string>;
  query?: string;
  /** Sent as JSON. */
  json?: unknown;
  /** Sent as a form. */
  form?: Record<string, string> | string;
  /** Sent as it is. */
  raw?: string | Uint8Array | ReadableStream<Uint8Array>;
  headers?: Record<string, string>;
  /** Instead of the operation's. */
  method?: string;
}

/** A response that the document allows, read. */
export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  readonly body: unknown;
}

/** Calls an operation by its id; fails if the response is not what the document says. */
export type ContractCall = (operationId: string, options?: CallOptions) => Promise<Answer>;

/** @param origin scheme, host and port of the server */
export function contractCall(origin: string, contract: Contract): ContractCall {
  const operations = new Map(contract.operations.map((operation) => [operation.id, operation]));

  return async (operationId, options = {}) => {
    const operation = operations.get(operationId);
    if (!operation) throw new Error(`no operation ${operationId}`);
    const path = operation.path.replace(/\{(\w+)\}/g, (_, name: string) =>
      encodeURIComponent(options.path?.[name] ?? ""),
    );
    const headers: Record<string, string> = {
      ...(options.as !== undefined && { authorization: options.as }),
    };
    let body = options.raw;
    if (options.json !== undefined) {
      headers["content-type"] = "application/json";
      body = JSON.stringify(options.json);
    } else if (options.form !== undefined) {
      headers["content-type"] = "application/x-www-form-urlencoded";
      body = new URLSearchParams(options.form).toString();
    }
    const response = await fetch(`${origin}${path}${options.query ?? ""}`, {
      method: options.method ?? operation.method,
      headers: { ...headers, ...options.headers },
      ...(body !== undefined && { body, duplex: "half" }),
    });
    const text = await response.text();
    contract.check(operationId, response, text);
    const isJson = response.headers.get("content-type")?.includes("json");
    return {
      status: response.status,
      headers: response.headers,
      text,
      body: isJson ? JSON.parse(text) : undefined,
    };
  };
}
