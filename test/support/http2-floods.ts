/** Floods of HTTP/2: frames that cost the client little, made again and again, and what becomes of its connection. */
import { setImmediate } from "node:timers/promises";
import { FrameReader, FrameWriter } from "../../src/platform/http2/frames.ts";
import { HpackEncoder } from "../../src/platform/http2/hpack-encoder.ts";
import { errorCode, flag, frameType, max31, setting } from "../../src/platform/http2/protocol.ts";
import { beginHttp2 } from "./reset-flood.ts";

/** @param id of a new stream @param block the fields of a call */
type Write = (writer: FrameWriter, id: number, block: Uint8Array) => void;

interface Flood {
  readonly write: Write;
  /** Fields beside those of a call. */
  readonly more?: readonly string[];
  /** How often a field of 3,500 bytes is among them. It is sent once: then a byte refers to it (RFC 7541). */
  readonly large?: number;
  readonly allowed?: boolean;
}

const nothing = new Uint8Array();
const bytes = new Uint8Array(8);
const windowSetting = Uint8Array.from([0, setting.initialWindowSize, 0, 0, 0xff, 0xff]);

/** A request, and behind it a frame that breaks a rule. */
const behind =
  (type: number, payload: Uint8Array): Write =>
  (writer, id, block) => {
    writer.headers(id, block, false);
    writer.frame(type, 0, id, payload);
  };

const request: Write = (writer, id, block) => writer.headers(id, block, true);

/** By name. The connection of those that are `allowed` need not be cut, but others have to be served. */
const floods = {
  "resets by the client": {
    write(writer, id, block) {
      writer.headers(id, block, false);
      writer.number(frameType.rstStream, id, errorCode.cancel);
    },
  },
  "reset for a malformed request": { more: ["connection", "close"], write: request },
  "reset for less DATA than announced": { more: ["content-length", "1"], write: request },
  "reset for trailers that do not end": {
    write(writer, id, block) {
      writer.headers(id, block, false);
      writer.headers(id, block, false);
    },
  },
  "reset for too long headers": { large: 128, write: request },
  "window beyond its maximum": {
    write(writer, id, block) {
      writer.headers(id, block, false);
      writer.number(frameType.windowUpdate, id, max31);
    },
  },
  "window opened by nothing": { write: behind(frameType.windowUpdate, new Uint8Array(4)) },
  "PRIORITY of four bytes": { write: behind(frameType.priority, new Uint8Array(4)) },
  "more DATA than announced": { more: ["content-length", "1"], write: behind(frameType.data, bytes) },
  "DATA behind the end": {
    write(writer, id, block) {
      writer.headers(id, block, true);
      writer.frame(frameType.data, 0, id, bytes);
    },
  },
  "HEADERS behind the end": {
    write(writer, id, block) {
      writer.headers(id, block, true);
      writer.headers(id, block, true);
    },
  },
  "empty DATA": {
    write(writer, id, block) {
      if (id === 1) writer.headers(id, block, false);
      else writer.frame(frameType.data, 0, 1, nothing);
    },
  },
  "CONTINUATION without end": {
    write(writer, id, block) {
      if (id === 1) writer.frame(frameType.headers, flag.endStream, 1, block);
      else writer.frame(frameType.continuation, 0, 1, nothing);
    },
  },
  PING: { allowed: true, write: (writer) => writer.frame(frameType.ping, 0, 0, bytes) },
  SETTINGS: { allowed: true, write: (writer) => writer.frame(frameType.settings, 0, 0, windowSetting) },
  "a large field as often as it may be": { allowed: true, large: 17, write: request },
} as const satisfies Readonly<Record<string, Flood>>;

export type FloodName = keyof typeof floods;
const isFloodName = (name: string): name is FloodName => Object.hasOwn(floods, name);
export const floodNames = Object.keys(floods).filter(isFloodName);
export function isAllowed(name: FloodName): boolean {
  const { allowed = false }: Flood = floods[name];
  return allowed;
}

/** What has become of a connection. */
export interface FloodedConnection {
  /** Frames and requests that were written. */
  readonly writes: number;
  /** The error code of the last GOAWAY frame; undefined if the connection was not cut, or without a word. */
  readonly goaway: number | undefined;
  /** Whether the server has ended it. */
  readonly isCut: boolean;
}

/** Writes behind which the client looks whether the connection is still there. */
const writesAtOnce = 250;
/** A client has no more streams than its identifiers suffice for. */
const maxWrites = 1_000_000;

/** A connection that writes as much as the server takes, until it is cut or the time is over. */
export async function flood(
  port: number,
  name: FloodName,
  { isSecure = false, path = "/auth.v1.IntrospectionService/Introspect", forMs = 60_000 } = {},
): Promise<FloodedConnection> {
  const { write, large = 0, more = [] }: Flood = floods[name];
  const until = performance.now() + forMs;
  const socket = await beginHttp2(port, isSecure);
  let goaway: number | undefined;
  const reader = new FrameReader((type, _flags, _id, payload) => {
    if (type === frameType.goaway) goaway = payload.readUInt32BE(4);
  });
  socket.on("data", (bytes) => reader.read(bytes));
  const closed = new Promise((resolve) => socket.once("close", resolve));
  const writer = new FrameWriter((bytes) => socket.write(bytes));
  const encoder = new HpackEncoder();
  const largeFields = Array.from({ length: large }, () => ["x-large", "v".repeat(3_500)]).flat();
  const shared = [":method", "POST", ":scheme", "http", ":authority", "localhost"];
  shared.push("content-type", "application/grpc", "te", "trailers", ...more, ...largeFields);
  let writes = 0;
  while (!socket.destroyed && !socket.readableEnded && performance.now() < until && writes < maxWrites) {
    for (const last = writes + writesAtOnce; writes < last; writes += 1)
      write(writer, 2 * writes + 1, encoder.encode({ path, shared }));
    writer.flush();
    if (socket.writableNeedDrain)
      await Promise.race([new Promise((resolve) => socket.once("drain", resolve)), closed]);
    else await setImmediate();
  }
  const isCut = socket.destroyed || socket.readableEnded;
  socket.destroy();
  await closed;
  return { writes, goaway, isCut };
}
