/** A connection of the gRPC port: asked whether it lives, closed when it is idle, ended when it is abused. */
import { constants, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
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

/** Streams of a connection that may be reset at once, and a second. */
const resets = { burst: 1_000, perSecond: 33 };

/**
 * Node's own limits, past which it ends the connection with INTERNAL_ERROR. They are for what comes faster than it is
 * counted here, and for what is not seen here, such as requests with invalid headers.
 */
export const nodeLimits = {
  streamResetBurst: 2 * resets.burst,
  streamResetRate: resets.perSecond,
  maxSessionInvalidFrames: 2 * resets.burst,
};

export class GrpcConnection {
  /** Its streams of server reflection. */
  reflections = 0;
  readonly #session: ServerHttp2Session;
  readonly #timers: NodeJS.Timeout[];
  readonly #idle: NodeJS.Timeout;
  #open = 0;
  #resetsLeft = resets.burst;
  #refilledAt = 0;

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
      if (stream.rstCode !== constants.NGHTTP2_NO_ERROR) this.#countReset();
      // Node's Map of open streams keeps later ones alive (slots.ts). The other listeners of `close` are still called.
      stream.removeAllListeners("removeListener").removeAllListeners();
    });
  }

  /**
   * Counts a reset: by the client (CVE-2023-44487), for an error of its (CVE-2025-8671), or of a stalled stream, of
   * which there cannot be too many: there are a thousand at once, and each takes half a minute.
   */
  #countReset(): void {
    const now = performance.now();
    const refill = ((now - this.#refilledAt) / 1000) * resets.perSecond;
    this.#resetsLeft = Math.min(resets.burst, this.#resetsLeft + refill) - 1;
    this.#refilledAt = now;
    if (this.#resetsLeft >= 0) return;
    const error = new Error("Too many streams were reset");
    // Within the reading of frames, no GOAWAY could be sent.
    setImmediate(() => this.#session.destroy(error, constants.NGHTTP2_ENHANCE_YOUR_CALM));
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
