/**
 * A client of HTTP/2 that keeps as many streams open as the server permits, by the letter of RFC 9113: a stream is open
 * until both sides have ended it, or one has reset it (section 5.1.2). The bodies of its requests come some time after
 * their headers, so that a response may come first.
 */
import { once } from "node:events";
import { beginHttp2, callFrame, frame } from "./reset-flood.ts";

const types = { data: 0, headers: 1, reset: 3, settings: 4, goaway: 7, window: 8 };
const ends = 1;
const acknowledges = 1;
const maxConcurrentStreams = 3;
/** Milliseconds until the last bodies follow their headers. */
const lateMs = 100;

/** What the client has seen of the server. */
export interface FullConnection {
  readonly requests: number;
  /** Responses that ended. */
  readonly responses: number;
  /** Error codes of streams that were reset. */
  readonly resets: readonly number[];
  /** Error codes of GOAWAY frames. */
  readonly goaways: readonly number[];
}

interface Target {
  readonly path: string;
  readonly isSecure?: boolean;
  readonly contentType?: string;
  /** How many times as many requests as may be open at once. */
  readonly rounds: number;
}

/** The number of streams that the server permits at once. @param settings the payload of a SETTINGS frame */
function limitIn(settings: Buffer): number {
  for (let at = 0; at < settings.length; at += 6)
    if (settings.readUInt16BE(at) === maxConcurrentStreams) return settings.readUInt32BE(at + 2);
  throw new Error("The server permits any number of streams");
}

/** Sends requests, each with a body of 16 bytes, until all are over or the connection is. */
export async function fillConnection(
  port: number,
  { path, isSecure = false, contentType, rounds }: Target,
): Promise<FullConnection> {
  const socket = await beginHttp2(port, isSecure);
  const open = new Map<number, { isSent: boolean; isAnswered: boolean }>();
  const resets: number[] = [];
  const goaways: number[] = [];
  let limit = 0;
  let requests = 0;
  let responses = 0;
  let unread = Buffer.alloc(0);

  function openMore(): void {
    for (; open.size < limit && requests < rounds * limit; requests += 1) {
      const id = 2 * requests + 1;
      open.set(id, { isSent: false, isAnswered: false });
      socket.write(callFrame(id, path, false, contentType));
      if (requests % 4 === 0) sendBody(id);
      else setTimeout(sendBody, (requests * 7) % lateMs, id);
    }
    if (open.size === 0) socket.destroy();
  }

  function sendBody(id: number): void {
    const stream = open.get(id);
    if (!stream || socket.destroyed) return;
    stream.isSent = true;
    socket.write(frame(types.data, ends, id, Buffer.alloc(16)));
    if (stream.isAnswered) close(id);
  }

  function close(id: number): void {
    if (open.delete(id)) openMore();
  }

  function receive(type: number, flags: number, id: number, payload: Buffer): void {
    if (type === types.settings && flags !== acknowledges) {
      limit = limitIn(payload);
      socket.write(frame(types.settings, acknowledges, 0, Buffer.alloc(0)));
      openMore();
    } else if (type === types.goaway) {
      goaways.push(payload.readUInt32BE(4));
      socket.destroy();
    } else if (type === types.reset) {
      resets.push(payload.readUInt32BE(0));
      close(id);
    } else if ((type === types.headers || type === types.data) && flags & ends) {
      responses += 1;
      const stream = open.get(id);
      if (stream) stream.isAnswered = true;
      if (stream?.isSent) close(id);
    }
  }

  socket.on("data", (bytes: Buffer) => {
    unread = Buffer.concat([unread, bytes]);
    while (unread.length >= 9 && unread.length >= 9 + unread.readUIntBE(0, 3)) {
      const end = 9 + unread.readUIntBE(0, 3);
      receive(unread.readUInt8(3), unread.readUInt8(4), unread.readUInt32BE(5), unread.subarray(9, end));
      unread = unread.subarray(end);
    }
  });
  const unlimited = Buffer.alloc(4);
  unlimited.writeUInt32BE(2 ** 30);
  socket.write(frame(types.window, 0, 0, unlimited));
  await once(socket, "close");
  return { requests, responses, resets, goaways };
}
