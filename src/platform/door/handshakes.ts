/** Ends connections that do not get through their handshake, of TLS or of HTTP/2 (RFC 9113 section 3.4), in time. */
import type { Http2Session, ServerHttp2Session } from "node:http2";
import type { Server, Socket } from "node:net";
import type { TLSSocket } from "node:tls";

/** Milliseconds that a handshake may take, from the moment when the connection is accepted. */
export const handshakeMs = 10_000;

/** The accepted sockets of sessions, which do not give them away. */
const sockets = new WeakMap<Http2Session, Socket>();

/** Ends a session and its connection. Node's `destroy` waits for what is unsent, which a client may never read. */
export function cutSession(session: Http2Session | undefined): void {
  session?.destroy();
  if (session) sockets.get(session)?.destroy();
}

export class Handshakes {
  /** The accepted sockets, by their ends: over TLS, events have another socket of the same connection. */
  readonly #pending = new Map<string, { readonly socket: Socket; readonly timer: NodeJS.Timeout }>();

  /** Watches the connections of a server over TLS, or of HTTP/2 in cleartext. */
  watch(server: Server, limitMs: number): void {
    server.prependListener("connection", (socket: Socket) => {
      const ends = endsOf(socket);
      const timer = setTimeout(() => socket.destroy(), limitMs).unref();
      this.#pending.set(ends, { socket, timer });
      // Another connection may have the same ends by then.
      socket.once("close", () => this.#pending.get(ends)?.socket === socket && this.#over(ends));
    });
    server.on("secureConnection", (socket: TLSSocket) => {
      if (socket.alpnProtocol !== "h2") this.#over(endsOf(socket));
    });
    server.on("session", (session: ServerHttp2Session) => {
      const ends = endsOf(session.socket);
      const pending = this.#pending.get(ends);
      if (pending) sockets.set(session, pending.socket);
      session.once("remoteSettings", () => this.#over(ends));
    });
  }

  cut(): void {
    for (const { socket } of this.#pending.values()) socket.destroy();
  }

  #over(ends: string): void {
    clearTimeout(this.#pending.get(ends)?.timer);
    this.#pending.delete(ends);
  }
}

function endsOf({ remoteAddress, remotePort, localAddress }: Socket): string {
  return `${remoteAddress} ${remotePort} ${localAddress}`;
}
