/** A connection of the gRPC port: asked whether it lives, closed when it is idle. */
import type { ServerHttp2Session, ServerHttp2Stream } from "node:http2";
import { cutSession } from "../door/handshakes.ts";

/** Times of a connection, in milliseconds. */
export interface ConnectionTimes {
  /** Between two PINGs. */
  readonly pingMs: number;
  /** For the acknowledgement of a PING, and of this server's settings. */
  readonly ackMs: number;
  /** Without a stream, until the connection is closed by GOAWAY. */
  readonly idleMs: number;
}

/** A client that vanished is noticed within 80 seconds. */
export const connectionTimes: ConnectionTimes = { pingMs: 60_000, ackMs: 20_000, idleMs: 600_000 };

export class GrpcConnection {
  /** Its streams of server reflection. */
  reflections = 0;
  readonly #session: ServerHttp2Session;
  readonly #timers: NodeJS.Timeout[];
  readonly #idle: NodeJS.Timeout;
  #open = 0;

  constructor(session: ServerHttp2Session, { pingMs, ackMs, idleMs }: ConnectionTimes) {
    this.#session = session;
    this.#idle = setTimeout(() => this.#open === 0 && session.close(), idleMs);
    // Until the client has acknowledged the settings, Node does not hold it to them.
    const settings = setTimeout(() => session.pendingSettingsAck && cutSession(session), ackMs);
    this.#timers = [this.#idle, settings, setInterval(() => this.#ping(ackMs), pingMs)];
    for (const timer of this.#timers) timer.unref();
    session.once("close", () => {
      for (const timer of this.#timers) clearTimeout(timer);
    });
  }

  /** Counts a stream until it is closed, and then holds nothing of its call. */
  count(stream: ServerHttp2Stream): void {
    this.#open += 1;
    stream.on("close", () => {
      this.#open -= 1;
      if (this.#open === 0) this.#idle.refresh();
      // Node's Map of open streams keeps later ones alive, as Slots does not (base/deadlines.ts). The other
      // listeners of `close` are still called.
      stream.removeAllListeners("removeListener").removeAllListeners();
    });
  }

  #ping(ackMs: number): void {
    const session = this.#session;
    // What is left of a session that has ended is what its client does not read.
    if (session.destroyed) {
      cutSession(session);
      return;
    }
    let isAlive = false;
    // After a pause of this process, what has arrived meanwhile is read first.
    const late = setTimeout(() => setImmediate(() => isAlive || cutSession(session)), ackMs).unref();
    session.ping(() => {
      isAlive = true;
      clearTimeout(late);
    });
  }
}
