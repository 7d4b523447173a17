/** A collector of traces for tests: it takes what OpenTelemetry's exporter sends, and reads it by OTLP's protos. */
import { once } from "node:events";
import { createServer, type IncomingHttpHeaders } from "node:http";
import { buffer } from "node:stream/consumers";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { listening } from "../../src/platform/http/server.ts";

/** A span that has ended. Ids are in hexadecimal. */
export interface ReceivedSpan {
  readonly traceId: string;
  readonly spanId: string;
  /** Empty: it has none. */
  readonly parentId: string;
  readonly traceState: string;
  readonly name: string;
  readonly kind: "internal" | "server" | "client" | "producer" | "consumer";
  readonly attributes: Readonly<Record<string, unknown>>;
  /** Ids of spans. */
  readonly links: readonly string[];
  /** Whether its parent, or what it links to, is said to be in another process. */
  readonly isParentRemote: boolean;
  readonly isLinkRemote: boolean;
  readonly isError: boolean;
  /** `service.name` of the process. */
  readonly service: unknown;
}

export interface OtlpReceiver {
  /** For OTEL_EXPORTER_OTLP_ENDPOINT. */
  readonly endpoint: string;
  /** Everything that was sent, as it was sent. */
  readonly bytes: readonly Buffer[];
  readonly headers: readonly IncomingHttpHeaders[];
  readonly spans: readonly ReceivedSpan[];
  stop(): Promise<void>;
}

/** @param status of each of its answers */
export async function startOtlpReceiver(status = () => 200): Promise<OtlpReceiver> {
  const bytes: Buffer[] = [];
  const headers: IncomingHttpHeaders[] = [];
  const spans: ReceivedSpan[] = [];
  const server = createServer(async (request, response) => {
    const body = await buffer(request);
    const isOtlp =
      request.url === "/v1/traces" && request.headers["content-type"] === "application/x-protobuf";
    if (isOtlp) {
      bytes.push(body);
      headers.push(request.headers);
      spans.push(...spansOf(body));
    }
    response.writeHead(isOtlp ? status() : 404).end();
  });
  const port = await listening(server, "127.0.0.1", 0);
  return {
    endpoint: `http://127.0.0.1:${port}`,
    ...{ bytes, headers, spans },
    async stop() {
      server.close();
      server.closeAllConnections();
      await once(server, "close");
    },
  };
}

/** The fields of a message, by their numbers: bytes, or a number for what is none. */
type Message = ReadonlyMap<number, readonly (Buffer | number)[]>;

function read(message: Buffer): Message {
  const fields = new Map<number, (Buffer | number)[]>();
  const reader = new BinaryReader(message);
  while (reader.pos < reader.len) {
    const [field, type] = reader.tag();
    let value: Buffer | number = 0;
    if (type === WireType.LengthDelimited) value = Buffer.from(reader.bytes());
    else if (type === WireType.Varint) value = Number(reader.int64());
    else if (type === WireType.Bit64) value = reader.double();
    else if (type === WireType.Bit32) value = reader.fixed32();
    else reader.skip(type);
    fields.set(field, [...(fields.get(field) ?? []), value]);
  }
  return fields;
}

const parts = (message: Message, field: number): Buffer[] =>
  (message.get(field) ?? []).filter((value) => Buffer.isBuffer(value));
const part = (message: Message, field: number): Buffer => parts(message, field)[0] ?? Buffer.alloc(0);
const number = (message: Message, field: number): number => Number(message.get(field)?.[0] ?? 0);

const kinds = ["internal", "internal", "server", "client", "producer", "consumer"] as const;

/** opentelemetry/proto/collector/trace/v1/trace_service.proto, ExportTraceServiceRequest. */
function spansOf(request: Buffer): ReceivedSpan[] {
  return parts(read(request), 1)
    .map(read)
    .flatMap((ofResource) => {
      const { "service.name": service } = attributesOf(read(part(ofResource, 1)), 1);
      const ofScopes = parts(ofResource, 2).map(read);
      return ofScopes.flatMap((ofScope) => parts(ofScope, 2)).map((span) => spanOf(read(span), service));
    });
}

function spanOf(span: Message, service: unknown): ReceivedSpan {
  return {
    traceId: part(span, 1).toString("hex"),
    spanId: part(span, 2).toString("hex"),
    traceState: part(span, 3).toString(),
    parentId: part(span, 4).toString("hex"),
    name: part(span, 5).toString(),
    kind: kinds[number(span, 6)] ?? "internal",
    attributes: attributesOf(span, 9),
    links: parts(span, 13).map((link) => part(read(link), 2).toString("hex")),
    isParentRemote: isRemote(number(span, 16)),
    isLinkRemote: parts(span, 13).some((link) => isRemote(number(read(link), 6))),
    // STATUS_CODE_ERROR
    isError: number(read(part(span, 15)), 3) === 2,
    service,
  };
}

/** SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK, if SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK says that it is known. */
const isRemote = (flags: number) => (flags & 0x300) === 0x300;

function attributesOf(message: Message, field: number): Record<string, unknown> {
  const pairs = parts(message, field).map(read);
  return Object.fromEntries(pairs.map((pair) => [part(pair, 1).toString(), anyValueOf(read(part(pair, 2)))]));
}

/** AnyValue: a text, a whole number, or a broken one. */
function anyValueOf(value: Message): unknown {
  return value.get(1)?.[0]?.toString() ?? value.get(3)?.[0] ?? value.get(4)?.[0];
}
