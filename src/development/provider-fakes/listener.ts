/**
 * The port of a fake: HTTP/2, and HTTP/1.1 for providers that support it, in cleartext or over TLS. The protocol
 * of a connection is detected by its first bytes in cleartext, and by ALPN over TLS. Owns the connections: closes
 * them when it is closed, and can refuse new ones and accept them again on the same port.
 */
import { createServer as createHttp1Server } from "node:http";
import { createServer as createHttp2Server } from "node:http2";
import { type AddressInfo, createServer as createTcpServer, type Server, type Socket } from "node:net";
import { setTimeout as elapsed } from "node:timers/promises";
import { createServer as createTlsServer, type TLSSocket } from "node:tls";
import type { Clock } from "../../platform/base/clock.ts";
import { type Connection, type Handle, onHttp1Request, onHttp2Stream } from "./exchange.ts";

/** Milliseconds that requests in flight have to finish when the port closes. */
const closeMs = 200;
const listenAgainMs = 50;

/** Where a fake listens. */
export interface ListenerOptions {
  /** 127.0.0.1 by default. */
  readonly host?: string;
  /** Any free port by default. */
  readonly port?: number;
  /** PEM; cleartext by default. */
  readonly tls?: { readonly cert: string; readonly key: string };
  /** The host name for clients, in origins, audiences and endpoints; `host` by default. */
  readonly publicHost?: string;
}

interface Listener {
  /** Without a trailing slash. */
  readonly origin: string;
  readonly port: number;
  /** Resets all connections and accepts no more. */
  refuseConnections(): void;
  /** Accepts connections again after `refuseConnections`. */
  acceptConnections(): void;
  close(): Promise<void>;
}

interface Protocols {
  /** Announced to HTTP/2 clients. */
  readonly maxConcurrentStreams: number;
  /** Whether HTTP/1.1 is supported as well. */
  readonly http1: boolean;
}

/** @throws the error of `listen` (EADDRINUSE, EACCES) */
export async function listen(
  options: ListenerOptions,
  { maxConcurrentStreams, http1 }: Protocols,
  { handle, clock }: { readonly handle: Handle; readonly clock: Clock },
): Promise<Listener> {
  const { host = "127.0.0.1", port: wanted = 0, tls } = options;
  const connections = new Map<Socket, Connection>();
  const http1Server = createHttp1Server(onHttp1Request(handle, track));
  const http2Server = createHttp2Server({ settings: { maxConcurrentStreams } });
  const sessions = new Set<{ close(): void }>();
  http2Server.on("sessionError", () => undefined);
  /** The connection whose session is being created. Node emits `session` synchronously. */
  let starting: Connection | undefined;
  http2Server.on("session", (session) => {
    sessions.add(session);
    if (starting) session.on("stream", onHttp2Stream(handle, starting));
    session.once("close", () => sessions.delete(session));
  });

  function speakHttp2(socket: Socket): void {
    starting = track(socket);
    http2Server.emit("connection", socket);
    starting = undefined;
  }

  /** @returns the connection of the socket, which is new the first time */
  function track(socket: Socket): Connection {
    const known = connections.get(socket);
    if (known) return known;
    const connection = { endedAt: undefined as number | undefined, reset: () => reset(socket) };
    connections.set(socket, connection);
    socket.setNoDelay(true);
    socket.on("error", () => undefined);
    socket.once("close", () => {
      connection.endedAt = clock.now();
      connections.delete(socket);
    });
    return connection;
  }

  function onCleartext(socket: Socket): void {
    track(socket);
    if (http1) socket.once("readable", () => detectProtocol(socket));
    else speakHttp2(socket);
  }

  function detectProtocol(socket: Socket): void {
    const bytes: Buffer | null = socket.read();
    if (bytes === null) return;
    socket.unshift(bytes);
    if (bytes.subarray(0, 3).toString("latin1") === "PRI") speakHttp2(socket);
    else http1Server.emit("connection", socket);
  }

  function onTls(socket: TLSSocket): void {
    track(socket);
    if (socket.alpnProtocol === "h2") speakHttp2(socket);
    else if (http1) http1Server.emit("connection", socket);
    else socket.destroy();
  }

  const ALPNProtocols = http1 ? ["h2", "http/1.1"] : ["h2"];
  const server = tls
    ? createTlsServer({ ...tls, ALPNProtocols }, onTls)
    : createTcpServer({ noDelay: true }, onCleartext);
  server.on("tlsClientError", () => undefined);
  // Also track sockets before their TLS handshake, so that they are closed too.
  if (tls) server.on("connection", track);
  await listenOn(server, wanted, host);
  const { port } = server.address() as AddressInfo;

  const intent: { state: "accept" | "refuse" | "closed" } = { state: "accept" };
  async function acceptAgain(): Promise<void> {
    while (intent.state === "accept" && !server.listening) {
      // The server may still be closing, or another process may briefly have the port.
      await listenOn(server, port, host).catch(() => elapsed(listenAgainMs));
    }
    if (intent.state !== "accept") server.close();
  }

  return {
    origin: originOf(tls !== undefined, options.publicHost ?? host, port),
    port,
    refuseConnections() {
      if (intent.state !== "accept") return;
      intent.state = "refuse";
      server.close();
      for (const connection of connections.values()) connection.reset();
    },
    acceptConnections() {
      if (intent.state !== "refuse") return;
      intent.state = "accept";
      void acceptAgain();
    },
    async close() {
      intent.state = "closed";
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      for (const session of sessions) session.close();
      http1Server.closeIdleConnections();
      const abandoned = new AbortController();
      const late = elapsed(closeMs, undefined, { signal: abandoned.signal }).catch(() => undefined);
      await Promise.race([closed, late]);
      abandoned.abort();
      for (const socket of connections.keys()) socket.destroy();
      await closed;
    },
  };
}

function listenOn(server: Server, port: number, host: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen({ port, host }, () => {
      server.off("error", reject);
      resolve();
    });
  });
}

/** Ends the socket as if the process had died: with RST, or over TLS by destroying it. */
function reset(socket: Socket): void {
  if ("encrypted" in socket) socket.destroy();
  else socket.resetAndDestroy();
}

function originOf(isTls: boolean, host: string, port: number): string {
  return `${isTls ? "https" : "http"}://${host.includes(":") ? `[${host}]` : host}:${port}`;
}
