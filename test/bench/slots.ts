/** What sends the requests of a load: one at a time each, in as few steps as can be, as they share the database's core. */
import { connect } from "node:net";
import { FrameConnection } from "../../src/platform/http2/frame-connection.ts";
import { localhostCertificate } from "../support/localhost-certificate.ts";

/** @param status of HTTP; that of gRPC as the one that says the same @param body a character for each byte */
export type Responded = (status: number, body: string) => void;
/** What has one request in flight at a time: a connection of HTTP/1.1, whose clients do not pipeline, or a stream. */
export type Slot = (request: Buffer, responded: Responded) => void;

/** In the place of a status, where the slot was lost with its connection. */
export const lost = 0;
/** Connections that are opened at the same time: each server's queue of new ones is finite. */
const openingCount = 256;
/** Connections of HTTP/2, unless so many streams need more. */
const fewestConnections = 4;
/** Streams on a connection of HTTP/2, as the server allows. */
const streamsPerConnection = 256;

/** @returns a connection of HTTP/1.1 each, a multiple of 256 if there are more */
export async function openConnections(port: number, count: number): Promise<readonly Slot[]> {
  const slots: Slot[] = [];
  const opening = { length: Math.min(count, openingCount) };
  while (slots.length < count)
    slots.push(...(await Promise.all(Array.from(opening, () => openConnection(port)))));
  return slots;
}

async function openConnection(port: number): Promise<Slot> {
  const socket = connect(port, "127.0.0.1");
  socket.setNoDelay(true).setEncoding("latin1");
  let waiting: Responded | undefined;
  const respond: Responded = (status, body) => {
    const responded = waiting;
    waiting = undefined;
    responded?.(status, body);
  };
  let pending = "";
  socket.on("data", (text: string) => {
    pending += text;
    const head = pending.indexOf("\r\n\r\n");
    if (head === -1) return;
    const fields = pending.slice(0, head + 2);
    const length = Number(/\r\ncontent-length: (\d+)/i.exec(fields)?.[1] ?? Number.NaN);
    const isChunked = Number.isNaN(length) && /\r\ntransfer-encoding: chunked/i.test(fields);
    if (Number.isNaN(length) && !isChunked) socket.destroy(new Error("a response without its length"));
    // No request is sent before the response to the one before, so the last chunk is the end of what has come.
    if (!(isChunked ? pending.endsWith("\r\n0\r\n\r\n") : pending.length >= head + 4 + length)) return;
    const response = pending;
    pending = "";
    respond(Number(response.slice(9, 12)), response.slice(head + 4));
  });
  await new Promise<void>((resolve, reject) => socket.once("connect", resolve).once("error", reject));
  let reason = "the connection was lost";
  socket.on("error", (error) => {
    reason = error.message;
  });
  socket.on("close", () => respond(lost, reason));
  return (request, responded) => {
    if (socket.destroyed) return responded(lost, reason);
    waiting = responded;
    socket.write(request);
  };
}

/** The head of a request over HTTP/2. */
export interface Head {
  readonly path: string;
  readonly shared: readonly string[];
}

/** @param origin https: with the certificate of the tests @returns a stream each, in turns on the connections */
export async function openStreams(origin: string, head: Head, count: number): Promise<readonly Slot[]> {
  const length = Math.max(fewestConnections, Math.ceil(count / streamsPerConnection));
  const connections = await Promise.all(Array.from({ length }, () => openFrames(origin)));
  const perConnection = Math.ceil(count / length);
  return Array.from({ length: perConnection }, () =>
    connections.map((connection) => streamOn(connection, head)),
  ).flat();
}

function openFrames(origin: string): Promise<FrameConnection> {
  return new Promise((resolve, reject) => {
    const connection = new FrameConnection(
      { origin, ca: localhostCertificate.cert },
      {
        onSettings: () => resolve(connection),
        onRetired() {},
        onClosed: () => reject(new Error(connection.reason)),
      },
    );
  });
}

/** The statuses of HTTP that say the same as those of gRPC. */
const statusOf: Readonly<Record<string, number>> = { "0": 200, "14": 503 };

function streamOn(connection: FrameConnection, head: Head): Slot {
  return (request, responded) => {
    if (!connection.isOpen) return responded(lost, connection.reason);
    let status = 500;
    let isGrpc = false;
    let grpcStatus: string | undefined;
    let body = "";
    connection.request(head, request, {
      onResponse(httpStatus, fields) {
        status = httpStatus;
        isGrpc = fields.get("content-type")?.startsWith("application/grpc") ?? false;
        grpcStatus = fields.get("grpc-status");
      },
      onData(part) {
        body += part.toString("latin1");
      },
      onTrailers(fields) {
        grpcStatus = fields.get("grpc-status");
      },
      onEnd({ isComplete, resetCode }) {
        if (!isComplete) responded(connection.isOpen ? 500 : lost, `${connection.reason} ${resetCode}`);
        else if (!isGrpc || status !== 200) responded(status, body);
        else responded(statusOf[grpcStatus ?? ""] ?? 500, grpcStatus === "0" ? body : `gRPC ${grpcStatus}`);
      },
    });
  };
}
