/** The protocols of unary calls, by content type, and the names of their headers. */
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
  return (
    dialects.get(contentType) ??
    dialects.get(contentType.toLowerCase().replace(/(?<=json); ?charset=utf-?8$/, ""))
  );
}
