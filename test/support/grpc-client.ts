/** Callers of native gRPC that share no code with the server: @grpc/grpc-js with .proto files, and bare HTTP/2. */
import { connect, constants, type IncomingHttpHeaders, type OutgoingHttpHeaders } from "node:http2";
import {
  type CallOptions,
  type ChannelCredentials,
  Client,
  type ClientDuplexStream,
  type ClientReadableStream,
  credentials,
  Metadata,
} from "@grpc/grpc-js";
import {
  type AnyDefinition,
  loadSync,
  type MethodDefinition,
  type PackageDefinition,
  type ServiceDefinition,
} from "@grpc/proto-loader";

type Method = MethodDefinition<object, object>;

/** A method out of a .proto file. */
export function loadMethod(
  file: string,
  service: string,
  method: string,
  includeDirs: string[] = [],
): Method {
  return methodOf(
    loadSync(file, { includeDirs, enums: String, longs: String, oneofs: true }),
    service,
    method,
  );
}

/** A method of what was loaded. */
export function methodOf(definition: PackageDefinition, service: string, method: string): Method {
  const found = definition[service];
  const named = found && isService(found) ? found[method] : undefined;
  if (!named) throw new Error(`there is no ${service}/${method}`);
  return named;
}

function isService(definition: AnyDefinition): definition is ServiceDefinition {
  return typeof definition["format"] !== "string";
}

export class GrpcClient {
  readonly #client: Client;

  /** @param ports of servers on this machine, which take turns */
  constructor(ports: number | readonly number[], secured: ChannelCredentials = credentials.createInsecure()) {
    const target =
      typeof ports === "number" ? `localhost:${ports}` : `ipv4:${ports.map((port) => `127.0.0.1:${port}`)}`;
    const roundRobin = JSON.stringify({ loadBalancingConfig: [{ round_robin: {} }] });
    this.#client = new Client(target, secured, { "grpc.service_config": roundRobin });
  }

  unary(method: Method, request: object, metadata: Record<string, string> = {}, options: CallOptions = {}) {
    return new Promise<object>((resolve, reject) => {
      this.#client.makeUnaryRequest(
        method.path,
        method.requestSerialize,
        method.responseDeserialize,
        request,
        metadataOf(metadata),
        options,
        (error, answer) => (error ? reject(error) : resolve(answer ?? {})),
      );
    });
  }

  serverStream(method: Method, request: object): ClientReadableStream<object> {
    const { path, requestSerialize, responseDeserialize } = method;
    return this.#client.makeServerStreamRequest(path, requestSerialize, responseDeserialize, request);
  }

  bidiStream(method: Method): ClientDuplexStream<object, object> {
    const { path, requestSerialize, responseDeserialize } = method;
    return this.#client.makeBidiStreamRequest(path, requestSerialize, responseDeserialize);
  }

  close(): void {
    this.#client.close();
  }
}

function metadataOf(values: Record<string, string>): Metadata {
  const metadata = new Metadata();
  for (const [name, value] of Object.entries(values)) metadata.set(name, value);
  return metadata;
}

export interface RawAnswer {
  readonly headers: IncomingHttpHeaders;
  readonly trailers: IncomingHttpHeaders;
  readonly body: Buffer;
}

/** One request over HTTP/2 in cleartext, exactly as given. */
export async function rawRequest(
  port: number,
  headers: OutgoingHttpHeaders,
  body?: Buffer,
): Promise<RawAnswer> {
  const session = connect(`http://127.0.0.1:${port}`);
  try {
    return await new Promise((resolve, reject) => {
      const stream = session.request({
        [constants.HTTP2_HEADER_METHOD]: "POST",
        [constants.HTTP2_HEADER_CONTENT_TYPE]: "application/grpc",
        te: "trailers",
        ...headers,
      });
      let answered: IncomingHttpHeaders = {};
      let trailers: IncomingHttpHeaders = {};
      const chunks: Buffer[] = [];
      session.on("error", reject);
      stream.on("error", reject);
      stream.on("response", (received) => {
        answered = received;
      });
      stream.on("trailers", (received) => {
        trailers = received;
      });
      stream.on("data", (chunk) => chunks.push(chunk));
      stream.on("close", () => resolve({ headers: answered, trailers, body: Buffer.concat(chunks) }));
      stream.end(body);
    });
  } finally {
    session.destroy();
  }
}

/** A message in the envelope of gRPC. */
export function envelope(message: Uint8Array, flags = 0, length = message.length): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt8(flags, 0);
  head.writeUInt32BE(length, 1);
  return Buffer.concat([head, message]);
}
