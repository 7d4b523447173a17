/** Listens for HTTP/2 alone, over TLS or in cleartext by prior knowledge. HTTP/1 is refused in its own words. */
import {
  createServer as createHttp2Server,
  createSecureServer,
  type SecureServerOptions,
  type ServerHttp2Session,
} from "node:http2";
import { createServer, type Server, type Socket } from "node:net";

const preface = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");

const message = "This port speaks HTTP/2 only. HTTP/1.1 is spoken on the port of SERVER_PORT.\n";
const refusal = [
  "HTTP/1.1 505 HTTP Version Not Supported",
  "Content-Type: text/plain",
  `Content-Length: ${message.length}`,
  "Connection: close",
  "",
  message,
].join("\r\n");

/** Milliseconds that a client has to read the refusal. */
const refusalMs = 1_000;

/** @returns a server whose `session` events are the connections of HTTP/2 */
export function createHttp2Listener(options: SecureServerOptions): Server {
  if (options.key !== undefined) return createSecureServer(options).on("unknownProtocol", refuse);
  const http2 = createHttp2Server(options);
  const listener = createServer((socket) => {
    socket.on("error", () => undefined);
    // Node would send the first frames of HTTP/2 to whoever connects.
    socket.once("readable", () => {
      const first: Buffer | null = socket.read();
      if (!first) return;
      socket.unshift(first);
      const length = Math.min(first.length, preface.length);
      if (preface.subarray(0, length).equals(first.subarray(0, length))) http2.emit("connection", socket);
      else refuse(socket);
    });
  });
  http2.on("session", (session: ServerHttp2Session) => listener.emit("session", session));
  return listener;
}

function refuse(socket: Socket): void {
  socket.end(refusal);
  socket.resume();
  setTimeout(() => socket.destroy(), refusalMs).unref();
}
