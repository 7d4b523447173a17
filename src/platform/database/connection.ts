/**
 * One connection to PostgreSQL, on a socket of our own, used until it ends and never again. postgres.js (3.4.9)
 * would reconnect, and statements can get lost in it where it has lost a connection; so each connection is a client
 * of its own, and what is in flight is ended here. Every statement has a deadline: a server that is frozen, or a
 * network that swallows everything, says nothing, and then only the client can end the connection.
 */
import { connect, type Socket } from "node:net";
import { drizzle } from "drizzle-orm/postgres-js";
import postgres from "postgres";
import { Deadlines } from "../base/deadlines.ts";
import { codeOf } from "../base/error-code.ts";
import { type BackendKey, requestCancel } from "./cancel.ts";
import type { Standing } from "./choose-primary.ts";
import type { Address } from "./settings.ts";

/** Options of postgres.js that say where and as whom to connect. */
export type ClientOptions = postgres.Options<Record<string, never>>;

/** Rows, with the tag of the last command (`COMMIT`, `ROLLBACK`), and with what the server calls the connection. */
export type Result = readonly unknown[] & { readonly command?: string; readonly state?: BackendKey };

export interface ConnectionOptions {
  readonly address: Address;
  /** Encryption, authentication, and parameters of the session. */
  readonly client: ClientOptions;
  /** Whether statements are prepared once and run by their names. */
  readonly prepare: boolean;
  /** Milliseconds that a statement may take before the connection is ended: longer than the server's own limit. */
  readonly timeoutMs: number;
  /** Milliseconds from the first packet to the end of `check`, all in all. */
  readonly connectTimeoutMs: number;
  /** Milliseconds that `check` may take later. */
  readonly checkTimeoutMs: number;
  /** Rejects if the server at the other end is not one to use. Resolves to what it says of itself, if it was asked. */
  readonly check: (query: (text: string) => Promise<Result>) => Promise<Standing | undefined>;
  /** Whether an error of a statement raises doubts about the server, so that the connection is ended; none unless given. */
  readonly isDoubtful?: (error: unknown) => boolean;
}

/** Called once when a connection has ended. @param error why, unless it was said goodbye to */
export type OnClose = (connection: Connection, error?: Error) => void;

/** The values of a statement's parameters. */
export type Parameters = postgres.ParameterOrJSON<never>[];

export interface QueryOptions {
  readonly parameters?: Parameters;
  /** Whether each row is a list of values, and not an object. */
  readonly asLists?: boolean;
  /** Several statements without parameters; they are not prepared. */
  readonly isScript?: boolean;
  readonly timeoutMs?: number;
}

/** A statement that has been sent. */
interface InFlight {
  readonly deadline: number;
  expire(): void;
  fail(error: Error): void;
}

export class Connection {
  /** By performance.now(). */
  readonly openedAt = performance.now();
  /** When it last responded, by performance.now(). */
  respondedAt = performance.now();
  /** How much work is done on it; kept by its lane. */
  uses = 0;
  /** When its last use ended, by performance.now(). */
  usedAt = performance.now();
  readonly #options: ConnectionOptions;
  readonly #client: postgres.Sql;
  readonly #inFlight = new Deadlines<InFlight>();
  readonly #onClose: OnClose;
  #standing: Standing | undefined;
  #socket: Socket | undefined;
  #backend: BackendKey | undefined;
  /** Whether there is somebody at the other end; perhaps nobody who responds. */
  #isConnected = false;
  #isUnconfirmed = false;
  #isClosed = false;

  constructor(options: ConnectionOptions, onClose: OnClose) {
    this.#options = options;
    this.#onClose = onClose;
    const driverOptions = {
      ...options.client,
      max: 1,
      // The driver takes it, and its types do not say so.
      socket: () => this.#openSocket(),
      onclose: () => this.close(connectionLost("the connection has ended")),
      // A warning of PostgreSQL, by the function that gives it: its text depends on the language.
      onnotice: ({ routine }: postgres.Notice) => {
        if (routine === "SyncRepWaitForLSN") this.#isUnconfirmed = true;
      },
      prepare: options.prepare,
      // These are looked after here, or in the lane.
      connect_timeout: 0,
      idle_timeout: 0,
      max_lifetime: null,
      keep_alive: null,
    };
    this.#client = postgres(driverOptions);
    // Sets the client's serializers and parsers to those that Drizzle expects.
    drizzle({ client: this.#client });
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  get address(): Address {
    return this.#options.address;
  }

  /** What the server said of itself at the last check. */
  get standing(): Standing | undefined {
    return this.#standing;
  }

  /** Connects, logs in and checks the server. */
  async open(): Promise<void> {
    try {
      await this.#check(this.#options.connectTimeoutMs);
    } catch (error) {
      // Nothing else is in flight, and a refusal says more of the host than a connection that is lost.
      this.close(error instanceof Error ? error : connectionLost("it could not be opened"));
      throw error;
    }
  }

  /** Rejects, and ends the connection, if the server does not respond soon or is not one to use. */
  async check(): Promise<void> {
    try {
      await this.#check(this.#options.checkTimeoutMs);
    } catch (error) {
      this.close(connectionLost("its check failed"));
      throw error;
    }
  }

  async #check(timeoutMs: number): Promise<void> {
    const deadline = performance.now() + timeoutMs;
    const query = (text: string) =>
      this.query(text, { timeoutMs: deadline - performance.now(), isScript: true });
    this.#standing = await this.#options.check(query);
  }

  /** Runs a statement; several may be in flight, and are then run one after the other. */
  query(text: string, options: QueryOptions = {}): Promise<Result> {
    if (this.#isClosed) return Promise.reject(connectionLost("the connection has ended"));
    const { parameters = [], asLists = false, isScript = false } = options;
    const { timeoutMs = this.#options.timeoutMs } = options;
    return new Promise((resolve, reject) => {
      const inFlight: InFlight = {
        deadline: performance.now() + timeoutMs,
        expire: () => {
          const late = this.#isConnected
            ? connectionLost("the database did not respond in time")
            : Object.assign(new Error("no connection was made in time"), { code: "CONNECT_TIMEOUT" });
          reject(late);
          this.abandon(late);
        },
        fail: reject,
      };
      const slot = this.#inFlight.take(inFlight);
      const settle = <T>(end: (value: T) => void) => {
        return (value: T) => {
          this.#inFlight.release(slot, inFlight);
          this.respondedAt = performance.now();
          end(value);
        };
      };
      const query = this.#client.unsafe(text, parameters, { prepare: !isScript && this.#options.prepare });
      const fail = (error: unknown) => {
        reject(error);
        if (this.#options.isDoubtful?.(error))
          this.close(connectionLost("it is not known which server is the primary"));
      };
      const succeed = (result: Result) => {
        this.#backend ??= result.state;
        const wasUnconfirmed = this.#isUnconfirmed;
        this.#isUnconfirmed = false;
        if (wasUnconfirmed) fail(unconfirmed());
        else resolve(result);
      };
      (asLists ? query.values() : query).then(settle(succeed), settle(fail));
    });
  }

  /** Ends the connection at once; what is in flight fails with the error, and PostgreSQL rolls it back. */
  close(error: Error): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#socket?.destroy();
    for (const inFlight of this.#inFlight) inFlight.fail(error);
    this.#onClose(this, error);
  }

  /** Ends it as {@link close} does, where the server may go on with what is in flight: it is told not to. */
  abandon(error: Error): void {
    // PostgreSQL does not notice that nobody waits for a commit: it would wait for its standbys for ever.
    if (this.#backend) requestCancel(this.address, this.#backend);
    this.close(error);
  }

  /** Ends it as {@link close} does, and never cancels what is in flight, which may wait at the server for ever. */
  leave(error: Error): void {
    this.#backend = undefined;
    this.close(error);
  }

  /** Says goodbye. Only for a connection on which nothing is in flight. */
  async end(): Promise<void> {
    this.#isClosed = true;
    await this.#client.end({ timeout: 1 });
    this.#socket?.destroy();
    this.#onClose(this);
  }

  /** Called by the driver when it connects, which it may do once. */
  async #openSocket(): Promise<Socket> {
    if (this.#isClosed || this.#socket) throw connectionLost("a connection is used once");
    const { host, port } = this.address;
    const socket = connect({ host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: 10_000 });
    this.#socket = socket;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const failed = (error: Error) => reject(inOneLine(error));
    const lost = () => reject(connectionLost("the connection was not made"));
    socket.once("connect", resolve).once("error", failed).once("close", lost);
    await promise;
    this.#isConnected = true;
    // Node has listeners of its own: by them, what is written after the other end has closed fails as a lost connection.
    socket.off("error", failed).off("close", lost);
    return socket;
  }
}

/**
 * A host may have several addresses, none of which could be connected to. The error of all has no message, and the code
 * of the first; it is refused only where each of them is.
 */
function inOneLine(error: Error): Error {
  if (!(error instanceof AggregateError)) return error;
  const message = error.errors.map((one) => (one instanceof Error ? one.message : String(one))).join("; ");
  const refused = "ECONNREFUSED";
  const code = error.errors.map(codeOf).find((one) => one !== undefined && one !== refused) ?? refused;
  return Object.assign(new Error(message, { cause: error }), { code });
}

/** An error with the driver's code, by which callers recognise that the database is unavailable. */
export function connectionLost(message: string): Error {
  return Object.assign(new Error(message), { code: "CONNECTION_CLOSED" });
}

/**
 * The error of a commit whose wait for the synchronous standbys was cancelled. PostgreSQL calls it a success: it is
 * committed here, and may be lost with this server.
 */
function unconfirmed(): Error {
  const error = new Error("the synchronous standbys have not confirmed the commit");
  return Object.assign(error, { code: "CONNECTION_UNCONFIRMED" });
}
