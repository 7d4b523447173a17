/** The connections of a server. They close without losing a request; what is open after the grace is cut. */
import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Http2SecureServer, ServerHttp2Session } from "node:http2";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { setImmediate as nextTurn } from "node:timers/promises";
import type { TLSSocket } from "node:tls";
import { Slots } from "../base/deadlines.ts";
import type { Handshakes } from "../door/handshakes.ts";
import { keepWhileOpen, openSessions } from "../door/sessions.ts";
import type { Stalls } from "../door/stalls.ts";

/** Milliseconds for which a connection that is closing waits for the rest of a head: a request may be on the way. */
const lingerMs = 250;
/** Milliseconds for the rest of a request that has its response already. Node reads and discards it. */
const unreadMs = 500;
/** More than Node's listen queue holds (511). */
const maxTurns = 600;

type SessionLimits = Parameters<typeof openSessions>[1] & {
  /** Milliseconds of an HTTP/2 session; for HTTP/1, Node ends idle connections. */
  readonly idleMs: number;
};

export class Connections {
  readonly #server: Server | Http2SecureServer;
  readonly #sockets = new Set<Socket>();
  /** The sockets of HTTP/1, in cleartext or of TLS. */
  readonly #http1 = new Set<Socket>();
  readonly #sessions: ReadonlySet<ServerHttp2Session>;
  readonly #handshakes: Handshakes | undefined;
  /** HTTP/1 responses not yet finished. */
  readonly #busy = new Slots<{ readonly response: ServerResponse; readonly turn: number }>();
  #turns = 0;
  #accepted = 0;
  #isDraining = false;
  #isClosing = false;

  /** @param handshakes of a server over TLS */
  constructor(
    server: Server | Http2SecureServer,
    limits: SessionLimits,
    stalls: Stalls,
    handshakes?: Handshakes,
  ) {
    this.#server = server;
    this.#handshakes = handshakes;
    server.on("connection", (socket: Socket) => {
      this.#accepted += 1;
      keepWhileOpen(this.#sockets, socket);
      if (!handshakes) keepWhileOpen(this.#http1, socket);
      stalls.watch(socket);
    });
    server.on("secureConnection", (socket: TLSSocket) => {
      if (socket.alpnProtocol === "h2") return;
      keepWhileOpen(this.#http1, socket);
      stalls.watch(socket);
    });
    this.#sessions = openSessions(server, limits);
    server.on("session", (session: ServerHttp2Session) =>
      session.setTimeout(limits.idleMs, () => session.close()),
    );
  }

  /** Tracks an HTTP/1 response until it has closed. Call it before anything is written to the response. */
  track(response: ServerResponse): void {
    const slot = this.#busy.take({ response, turn: this.#turns++ });
    // It closes once: `once` would cost a second closure.
    response.on("close", () => {
      this.#busy.release(slot);
      if (!response.req.complete) endUnlessComplete(response.req);
      this.#finished(response);
    });
    if (this.#isDraining) response.shouldKeepAlive = false;
  }

  /** The HTTP/1 responses not yet finished, of the connection or of all, in the order of their requests. */
  unfinished(socket?: Duplex): ServerResponse[] {
    return [...this.#busy]
      .filter(({ response }) => socket === undefined || response.req.socket === socket)
      .sort((a, b) => a.turn - b.turn)
      .map(({ response }) => response);
  }

  #finished(response: ServerResponse): void {
    if (!this.#isClosing || !response.shouldKeepAlive) return;
    // Its headers were sent with keep-alive, so the client may have sent further requests on the connection.
    const { socket } = response.req;
    if (this.unfinished(socket).length === 0) socket.destroySoon();
  }

  /** From now on every response announces that the connection will close. New connections are still accepted. */
  drain(): void {
    if (this.#isDraining) return;
    this.#isDraining = true;
    // Of pipelined requests only the last may close the connection.
    const last = new Map(this.unfinished().map((response) => [response.req.socket, response]));
    for (const response of last.values()) if (!response.headersSent) response.shouldKeepAlive = false;
    // GOAWAY names the last stream that gets a response, so the client can safely send the later ones elsewhere.
    for (const session of this.#sessions) session.close();
  }

  /** Lets Node read what arrived while the process was busy; of the listen queue, libuv accepts one in each turn. */
  async #acceptPending(): Promise<void> {
    let accepted = -1;
    for (let turn = 0; turn < 3 || (turn < maxTurns && accepted < this.#accepted); turn += 1) {
      accepted = this.#accepted;
      await nextTurn();
    }
  }

  /** Stops accepting, and resolves when all have closed. @returns how many were cut at the end of the grace */
  async close(graceMs: number): Promise<number> {
    this.drain();
    this.#isClosing = true;
    await this.#acceptPending();
    const { promise, resolve } = Promise.withResolvers<void>();
    // Node closes idle HTTP/1 connections here, and each HTTP/2 session when its streams have ended.
    this.#server.close(() => resolve());
    // Node does not count a connection without a request, or with part of one, as idle, and no longer times headers.
    const linger = setTimeout(() => {
      const busy = new Set(this.unfinished().map(({ req }) => req.socket));
      for (const socket of this.#http1.difference(busy)) socket.destroy();
      this.#handshakes?.cut();
    }, lingerMs);
    let cut = 0;
    const end = setTimeout(() => {
      cut = this.#sockets.size;
      for (const socket of this.#sockets) socket.destroy();
    }, graceMs);
    await promise;
    clearTimeout(linger);
    clearTimeout(end);
    return cut;
  }
}

/** Closes the connection if the rest of the request does not arrive soon: nobody waits for it. */
function endUnlessComplete(request: IncomingMessage): void {
  const { socket } = request;
  if (socket.destroyed) return;
  const timer = setTimeout(() => socket.destroySoon(), unreadMs);
  request.once("close", () => clearTimeout(timer));
}
