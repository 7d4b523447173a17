/** The protocols of unary calls by content type, the names of their headers, and the timeouts that callers set. */
import type { RpcProtocol } from "../base/observers.ts";

/** A protocol with a format of its messages. */
export interface Dialect {
  readonly protocol: RpcProtocol;
  /** Of a response. */
  readonly contentType: string;
  readonly isJson: boolean;
  readonly encodingHeader: string;
  readonly acceptEncodingHeader: string;
}

const grpcHeaders = { encodingHeader: "grpc-encoding", acceptEncodingHeader: "grpc-accept-encoding" };
const connectHeaders = { encodingHeader: "content-encoding", acceptEncodingHeader: "accept-encoding" };

const grpc = of("grpc", "application/grpc+proto");
const grpcWeb = of("grpc-web", "application/grpc-web+proto");
const dialects: ReadonlyMap<string, Dialect> = new Map([
  ["application/grpc", grpc],
  ["application/grpc-web", grpcWeb],
  ...[
    ...[grpc, of("grpc", "application/grpc+json"), grpcWeb, of("grpc-web", "application/grpc-web+json")],
    ...[of("connect", "application/proto"), of("connect", "application/json")],
  ].map((dialect): [string, Dialect] => [dialect.contentType, dialect]),
]);

function of(protocol: RpcProtocol, contentType: string): Dialect {
  const headers = protocol === "connect" ? connectHeaders : grpcHeaders;
  return { protocol, contentType, isJson: contentType.endsWith("json"), ...headers };
}

/** Undefined for all that is not served: streams of Connect, gRPC-Web's text mode, formats but proto and JSON. */
export function dialectOf(contentType: string | undefined): Dialect | undefined {
  if (contentType === undefined) return undefined;
  const plain = () => contentType.toLowerCase().replace(/ ?; ?charset=utf-?8$/, "");
  return dialects.get(contentType) ?? dialects.get(plain());
}

/** Milliseconds of the longest timeout of a unary call. Node's timers overflow after 24 days. */
const longestMs = 3_600_000;

const units: NodeJS.Dict<number> = { H: 3_600_000, M: 60_000, S: 1_000, m: 1, u: 1e-3, n: 1e-6 };

type Header = string | string[] | undefined;

function grpcTimeout(header: Header): number | undefined {
  if (header === undefined) return undefined;
  const [, amount, unit = ""] = /^(\d{1,8})([HMSmun])$/.exec(String(header)) ?? [];
  return Number(amount) * (units[unit] ?? Number.NaN);
}

function connectTimeout(header: Header): number | undefined {
  if (header === undefined) return undefined;
  return /^\d{1,10}$/.test(String(header)) ? Number(header) : Number.NaN;
}

/** The timeout of a unary call in milliseconds; undefined if there is none, NaN if it is malformed. */
export function timeoutOf(protocol: string, headers: NodeJS.Dict<string | string[]>): number | undefined {
  const timeoutMs =
    protocol === "connect"
      ? connectTimeout(headers["connect-timeout-ms"])
      : grpcTimeout(headers["grpc-timeout"]);
  return timeoutMs === undefined ? undefined : Math.min(timeoutMs, longestMs);
}

/** Removes from the headers of a stream the timeouts that are longer than those of unary calls: it has none then. */
export function dropLongTimeouts(headers: NodeJS.Dict<string | string[]>): void {
  if ((grpcTimeout(headers["grpc-timeout"]) ?? 0) > longestMs) delete headers["grpc-timeout"];
  if ((connectTimeout(headers["connect-timeout-ms"]) ?? 0) > longestMs) delete headers["connect-timeout-ms"];
}
