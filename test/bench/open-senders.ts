/** How the open-loop load sends a request, over each protocol. Requests are made before the clock runs. */
import { type ClientHttp2Session, connect as connectHttp2 } from "node:http2";
import { connect } from "node:net";
import { create, toBinary } from "@bufbuild/protobuf";
import { IntrospectRequestSchema } from "../../gen/proto/auth/v1/introspection_pb.ts";
import { introspectPath, tokensPath } from "./product.ts";

/**
 * What became of a request: its result, a 503 (or UNAVAILABLE), anything else, or nothing, as it was given up before a
 * connection was free for it.
 */
export type Answered = "good" | "refused" | "unsent" | { readonly failure: string };

/** Sends the next request. Without anything to send it says so as a failure. */
export type Send = (answered: (result: Answered) => void) => void;

type Answer = (status: number, text: string) => void;
/** What has one request in flight at a time: a connection of HTTP, which its clients do not pipeline, or a stream. */
type Slot = (request: Buffer, answered: Answer) => void;

/** Milliseconds after which a request is given up that no slot was free for. */
const patienceMs = 1_000;
/** In the place of a status, where a request was given up. */
const unsent = -1;
/** In the place of a status, where the slot was lost with its connection. */
const lost = 0;
/** Streams on a connection of gRPC, as the server allows. */
const streamsPerSession = 256;
/** Connections that are opened at the same time: each server's queue of new ones is finite. */
const openingCount = 256;

/**
 * @param kind http, refresh or grpc
 * @param inFlight requests at a time, at most, a multiple of 256. A client keeps back those that it has no slot for.
 */
export async function sendersOf(
  kind: string,
  port: number,
  authorization: string,
  lines: readonly string[],
  inFlight: number,
): Promise<Send> {
  if (kind === "grpc")
    return messageSender(overFree(openStreams(port, authorization, inFlight)), lines.map(messageOf));
  const send = overFree(await openConnections(port, inFlight));
  const post = (path: string) => (body: string) => requestOf(port, path, authorization, body);
  return kind === "refresh"
    ? refreshSender(send, lines.map(post(tokensPath)), post(tokensPath))
    : messageSender(send, lines.map(post(lines[0]?.startsWith("token=") ? introspectPath : tokensPath)));
}

function requestOf(port: number, path: string, authorization: string, body: string): Buffer {
  return Buffer.from(
    `POST ${path} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nAuthorization: ${authorization}\r\n` +
      `Content-Type: application/x-www-form-urlencoded\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
  );
}

/** Sends over a slot that has no request in flight; without one, the request waits for it, for a second. */
function overFree(slots: readonly Slot[]): Slot {
  interface Waiting {
    readonly request: Buffer;
    readonly answered: Answer;
    readonly since: number;
  }
  const free = [...slots];
  // A set takes as little time for its first element as for its last one, however many there are.
  const waiting = new Set<Waiting>();
  const nextWaiting = (): Waiting | undefined => {
    for (const next of waiting) {
      waiting.delete(next);
      if (performance.now() - next.since <= patienceMs) return next;
      next.answered(unsent, "");
    }
    return undefined;
  };
  const sendOver = (slot: Slot, request: Buffer, answered: Answer) =>
    slot(request, (status, text) => {
      answered(status, text);
      if (status === lost) return;
      const next = nextWaiting();
      if (next) sendOver(slot, next.request, next.answered);
      else free.push(slot);
    });
  return (request, answered) => {
    const slot = free.shift();
    if (slot) sendOver(slot, request, answered);
    else waiting.add({ request, answered, since: performance.now() });
  };
}

function resultOf(status: number, text: string): Answered {
  if (status === 200) return "good";
  if (status === unsent) return "unsent";
  return status === 503 ? "refused" : { failure: `${status} ${text.slice(0, 300)}` };
}

function messageSender(send: Slot, requests: readonly Buffer[]): Send {
  let next = 0;
  return (answered) => {
    const request = requests[next++ % requests.length];
    if (request) send(request, (status, text) => answered(resultOf(status, text)));
  };
}

/** Refreshes what it has got: each authorization once at a time. */
async function refreshSender(
  send: Slot,
  grants: readonly Buffer[],
  post: (body: string) => Buffer,
): Promise<Send> {
  const refreshOf = (text: string) => {
    const token = /"refresh_token":"([^"]+)"/.exec(text)?.[1];
    return token === undefined ? undefined : post(`grant_type=refresh_token&refresh_token=${token}`);
  };
  const free: Buffer[] = [];
  for (let from = 0; from < grants.length; from += 100) {
    const obtained = grants.slice(from, from + 100).map(
      (grant) =>
        new Promise<void>((resolve, reject) =>
          send(grant, (status, text) => {
            const refresh = refreshOf(text);
            if (!refresh) return reject(new Error(`no grant: ${status} ${text}`));
            free.push(refresh);
            resolve();
          }),
        ),
    );
    await Promise.all(obtained);
  }
  return (answered) => {
    const request = free.shift();
    if (!request) return answered({ failure: "every authorization is being refreshed" });
    send(request, (status, text) => {
      free.push((status === 200 ? refreshOf(text) : undefined) ?? request);
      answered(resultOf(status, text));
    });
  };
}

async function openConnections(port: number, count: number): Promise<readonly Slot[]> {
  const slots: Slot[] = [];
  while (slots.length < count)
    slots.push(...(await Promise.all(Array.from({ length: openingCount }, () => openHttp(port)))));
  return slots;
}

/** A kept-alive connection, for one request at a time. */
async function openHttp(port: number): Promise<Slot> {
  const socket = connect(port, "127.0.0.1");
  socket.setNoDelay(true).setEncoding("latin1");
  let waiting: Answer | undefined;
  const respond: Answer = (status, text) => {
    const answered = waiting;
    waiting = undefined;
    answered?.(status, text);
  };
  let pending = "";
  socket.on("data", (text: string) => {
    pending += text;
    const head = pending.indexOf("\r\n\r\n");
    if (head === -1) return;
    const length = Number(/\r\ncontent-length: (\d+)/i.exec(pending.slice(0, head + 2))?.[1] ?? 0);
    if (pending.length < head + 4 + length) return;
    const response = pending;
    pending = "";
    respond(Number(response.slice(9, 12)), response.slice(head + 4));
  });
  const end = () => respond(lost, "the connection was lost");
  socket.on("error", end).on("close", end);
  await new Promise<void>((resolve) => socket.once("connect", resolve));
  return (request, answered) => {
    if (socket.destroyed) return answered(lost, "the connection was lost");
    waiting = answered;
    socket.write(request);
  };
}

function messageOf(token: string): Buffer {
  const message = toBinary(IntrospectRequestSchema, create(IntrospectRequestSchema, { token }));
  const frame = Buffer.alloc(5 + message.length);
  frame.writeUInt32BE(message.length, 1);
  frame.set(message, 5);
  return frame;
}

/** The statuses of HTTP that say the same. */
const statusOf: Readonly<Record<string, number>> = { "0": 200, "14": 503 };

function openStreams(port: number, authorization: string, count: number): readonly Slot[] {
  const headers = {
    ":method": "POST",
    ":path": "/auth.v1.IntrospectionService/Introspect",
    "content-type": "application/grpc+proto",
    te: "trailers",
    authorization,
  };
  const sessions = Array.from({ length: count / streamsPerSession }, () =>
    connectHttp2(`http://127.0.0.1:${port}`).on("error", () => undefined),
  );
  const overSession = (session: ClientHttp2Session): Slot => {
    return (request, answered) => {
      if (session.closed || session.destroyed) return answered(lost, "the connection was lost");
      const stream = session.request(headers);
      let status: unknown;
      stream.on("response", (response) => {
        status = response["grpc-status"];
      });
      stream.on("trailers", (trailers) => {
        status = trailers["grpc-status"];
      });
      stream.on("error", () => undefined);
      stream.on("close", () => {
        const text = `grpc-status ${String(status)}`;
        answered(status === undefined ? lost : (statusOf[String(status)] ?? 500), text);
      });
      stream.resume();
      stream.end(request);
    };
  };
  // In turns, so that a few requests at a time are on all connections.
  return Array.from({ length: streamsPerSession }, () => sessions.map(overSession)).flat();
}
