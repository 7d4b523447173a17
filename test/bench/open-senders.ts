/** How the open-loop load sends a request, over each protocol. Requests are made before the clock runs. */
import { connect as connectHttp2 } from "node:http2";
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
type Connection = (request: Buffer, answered: Answer) => void;

/** As many requests are in flight over HTTP at most: one on each connection, as its clients do not pipeline. */
const connectionCount = 1_024;
/** Milliseconds after which a request is given up that no connection was free for. */
const patienceMs = 1_000;
/** In the place of a status, where a request was given up. */
const unsent = -1;
const sessionCount = 8;

/** @param kind http, refresh or grpc */
export async function sendersOf(
  kind: string,
  port: number,
  authorization: string,
  lines: readonly string[],
): Promise<Send> {
  if (kind === "grpc") return grpcSender(port, authorization, lines);
  const send = overFree(await Promise.all(Array.from({ length: connectionCount }, () => openHttp(port))));
  const post = (path: string) => (body: string) => requestOf(port, path, authorization, body);
  return kind === "refresh"
    ? refreshSender(send, lines.map(post(tokensPath)), post(tokensPath))
    : formSender(send, lines.map(post(lines[0]?.startsWith("token=") ? introspectPath : tokensPath)));
}

function requestOf(port: number, path: string, authorization: string, body: string): Buffer {
  return Buffer.from(
    `POST ${path} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nAuthorization: ${authorization}\r\n` +
      `Content-Type: application/x-www-form-urlencoded\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
  );
}

/** Sends over a connection that has no request in flight; without one, the request waits for it, for a second. */
function overFree(connections: readonly Connection[]): Connection {
  interface Waiting {
    readonly request: Buffer;
    readonly answered: Answer;
    readonly since: number;
  }
  const free = [...connections];
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
  const sendOver = (connection: Connection, request: Buffer, answered: Answer) =>
    connection(request, (status, text) => {
      answered(status, text);
      const next = nextWaiting();
      if (next) sendOver(connection, next.request, next.answered);
      else free.push(connection);
    });
  return (request, answered) => {
    const connection = free.shift();
    if (connection) sendOver(connection, request, answered);
    else waiting.add({ request, answered, since: performance.now() });
  };
}

function resultOf(status: number, text: string): Answered {
  if (status === 200) return "good";
  if (status === unsent) return "unsent";
  return status === 503 ? "refused" : { failure: `${status} ${text.slice(0, 300)}` };
}

function formSender(send: Connection, requests: readonly Buffer[]): Send {
  let next = 0;
  return (answered) => {
    const request = requests[next++ % requests.length];
    if (request) send(request, (status, text) => answered(resultOf(status, text)));
  };
}

/** Refreshes what it has got: each authorization once at a time. */
async function refreshSender(
  send: Connection,
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

/** A kept-alive connection, for one request at a time. */
async function openHttp(port: number): Promise<Connection> {
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
  const lost = () => respond(0, "the connection was lost");
  socket.on("error", lost).on("close", lost);
  await new Promise<void>((resolve) => socket.once("connect", resolve));
  return (request, answered) => {
    if (socket.destroyed) return answered(0, "the connection was lost");
    waiting = answered;
    socket.write(request);
  };
}

function grpcSender(port: number, authorization: string, tokens: readonly string[]): Send {
  const messages = tokens.map((token) => {
    const message = toBinary(IntrospectRequestSchema, create(IntrospectRequestSchema, { token }));
    const frame = Buffer.alloc(5 + message.length);
    frame.writeUInt32BE(message.length, 1);
    frame.set(message, 5);
    return frame;
  });
  // What waits for its turn is kept in memory. Beyond 10 MB, Node resets requests that it has not sent, and that ends a
  // connection.
  const options = { maxSessionMemory: 1_000 };
  const sessions = Array.from({ length: sessionCount }, () =>
    connectHttp2(`http://127.0.0.1:${port}`, options),
  );
  const headers = {
    ":method": "POST",
    ":path": "/auth.v1.IntrospectionService/Introspect",
    "content-type": "application/grpc+proto",
    te: "trailers",
    authorization,
  };
  let next = 0;
  return (answered) => {
    const stream = sessions[next % sessions.length]?.request(headers);
    let status: unknown;
    stream?.on("response", (response) => {
      status = response["grpc-status"];
    });
    stream?.on("trailers", (trailers) => {
      status = trailers["grpc-status"];
    });
    stream?.on("error", () => undefined);
    stream?.on("close", () => {
      const failed = { failure: `grpc-status ${String(status)}` };
      answered(status === "0" ? "good" : status === "14" ? "refused" : failed);
    });
    stream?.resume();
    stream?.end(messages[next++ % messages.length]);
  };
}
