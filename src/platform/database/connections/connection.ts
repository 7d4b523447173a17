/**
 * One connection to PostgreSQL, not made again when it ends; every statement has a deadline. postgres.js (3.4.9) may
 * lose statements as it reconnects: so each connection has a client and a socket of its own, and this class settles
 * them.
 */
import { connect, type Socket } from "node:net";
import { drizzle } from "drizzle-orm/postgres-js";
import postgres from "postgres";
import { Deadlines } from "../../base/deadlines.ts";
import { codeOf } from "../../base/error-code.ts";
import { plannedEachTime } from "../database.ts";
import type { Address } from "../settings.ts";
import { type BackendKey, requestCancel } from "./cancel.ts";
import type { ReplicationState } from "./replication-state.ts";

/** Milliseconds that the check of a server may take. */
export const checkTimeoutMs = 2_000;

export type ClientOptions = postgres.Options<Record<string, never>> & { readonly password?: string };

/** Rows, with the tag of the last command (`COMMIT`, `ROLLBACK`) and the server's key for the connection. */
export type Result = readonly unknown[] & { readonly command?: string; readonly state?: BackendKey };

export interface ConnectionOptions {
  readonly address: Address;
  readonly client: ClientOptions;
  /** As {@link Login.renew}. */
  readonly renewPassword?: ((refused: string) => string | undefined) | undefined;
  /** Whether statements are prepared and pipelined. A pooler in transaction mode allows neither. */
  readonly prepare: boolean;
  /** Milliseconds that a statement may take before the connection is ended. They exceed the server's own limit. */
  readonly timeoutMs: number;
  /** Milliseconds that may pass from the first packet to the end of the first `check`; 3,000 unless given. */
  readonly connectTimeoutMs?: number;
  /** Milliseconds that each later `check` may take; {@link checkTimeoutMs} unless given. */
  readonly checkTimeoutMs?: number;
  /** Checks the server, and reads its replication state if that matters. Rejects if the server is not one to use. */
  readonly check: (query: (text: string) => Promise<Result>) => Promise<ReplicationState | undefined>;
  /** Whether an error of a statement raises doubts about the server: then the connection is ended. */
  readonly isDoubtful?: (error: unknown) => boolean;
}

/** Called once when a connection has ended. @param error why it ended; undefined after {@link Connection.terminate} */
export type OnClose = (connection: Connection, error?: Error) => void;

export type Parameters = postgres.ParameterOrJSON<never>[];

export interface QueryOptions {
  readonly parameters?: Parameters;
  /** Whether each row is a list of values, and not an object. */
  readonly asLists?: boolean;
  /** Whether the text is several statements without parameters; they are not prepared. */
  readonly isScript?: boolean;
  readonly timeoutMs?: number;
}

/** A statement that has been asked for, and has no result yet. */
interface InFlight {
  readonly deadline: number;
  expire(): void;
  fail(error: Error): void;
}

export class Connection {
  /** When the connection was made, by performance.now(). */
  readonly openedAt = performance.now();
  /** When the server last responded, by performance.now(). */
  respondedAt = performance.now();
  /** How many pieces of work use the connection now; counted by its lane. */
  uses = 0;
  usedAt = performance.now();
  readonly #options: ConnectionOptions;
  readonly #client: postgres.Sql;
  readonly #inFlight = new Deadlines<InFlight>();
  readonly #onClose: OnClose;
  #replicationState: ReplicationState | undefined;
  #socket: Socket | undefined;
  #backend: BackendKey | undefined;
  /** Whether the TCP connection was made. Whatever is at the other end need not respond. */
  #isConnected = false;
  #isUnconfirmed = false;
  #isClosed = false;

  constructor(options: ConnectionOptions, onClose: OnClose) {
    this.#options = options;
    this.#onClose = onClose;
    const driverOptions = {
      ...options.client,
      max: 1,
      // The driver supports this option; its types lack it.
      socket: () => this.#openSocket(),
      onclose: () => this.destroy(connectionLost("the connection has ended")),
      // PostgreSQL's warning is recognised by the function that raises it: its text depends on the language.
      onnotice: ({ routine }: postgres.Notice) => {
        if (routine === "SyncRepWaitForLSN") this.#isUnconfirmed = true;
      },
      prepare: options.prepare,
      // How many statements are sent before the response to the one in progress.
      ...(!options.prepare && { max_pipeline: 0 }),
      // This class and the lane have limits of their own.
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

  /** The server's state at the last check; undefined if that did not read it. */
  get replicationState(): ReplicationState | undefined {
    return this.#replicationState;
  }

  async open(): Promise<void> {
    try {
      await this.#check(this.#options.connectTimeoutMs ?? 3_000);
    } catch (error) {
      this.destroy(error instanceof Error ? error : connectionLost("it could not be opened"));
      throw error;
    }
  }

  /** Checks the server. If it does not respond in time, or is not one to use, the connection is ended; rejects. */
  async check(): Promise<void> {
    try {
      await this.#check(this.#options.checkTimeoutMs ?? checkTimeoutMs);
    } catch (error) {
      this.destroy(connectionLost("its check failed"));
      throw error;
    }
  }

  async #check(timeoutMs: number): Promise<void> {
    const deadline = performance.now() + timeoutMs;
    const query = (text: string) =>
      this.query(text, { timeoutMs: deadline - performance.now(), isScript: true });
    this.#replicationState = await this.#options.check(query);
  }

  /** Runs a statement. Several may be in flight; the server runs them one after the other. */
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
          this.cancelAndDestroy(late);
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
      const isKept = !isScript && !text.startsWith(plannedEachTime);
      const query = this.#client.unsafe(text, parameters, { prepare: isKept && this.#options.prepare });
      const fail = (error: unknown) => {
        reject(error);
        if (this.#options.isDoubtful?.(error))
          this.destroy(connectionLost("it is not known which server is the primary"));
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

  /** Ends the connection at once. What is in flight fails with the error, and PostgreSQL rolls it back. */
  destroy(error: Error): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#socket?.destroy();
    for (const inFlight of this.#inFlight) inFlight.fail(error);
    this.#onClose(this, error);
  }

  /** As {@link destroy}, and asks the server to cancel what is in flight: a commit could wait there for ever. */
  cancelAndDestroy(error: Error): void {
    if (this.#isClosed) return;
    if (this.#backend) requestCancel(this.address, this.#backend);
    this.destroy(error);
  }

  /** As {@link destroy}; what is in flight is never cancelled, and may wait at the server for ever. */
  destroyWithoutCancel(error: Error): void {
    this.#backend = undefined;
    this.destroy(error);
  }

  /** Ends the connection with PostgreSQL's Terminate message. Nothing may be in flight on it. */
  async terminate(): Promise<void> {
    this.#isClosed = true;
    await this.#client.end({ timeout: 1 });
    this.#socket?.destroy();
    this.#onClose(this);
  }

  /** Called by the driver when it connects. It may do so once. */
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
    // Node's own listeners remain: through them a write to a closed end fails as a lost connection.
    socket.off("error", failed).off("close", lost);
    return socket;
  }
}

/** The errors of all addresses of a host as one. Its code is ECONNREFUSED only if each address has refused. */
function inOneLine(error: Error): Error {
  if (!(error instanceof AggregateError)) return error;
  const message = error.errors.map((one) => (one instanceof Error ? one.message : String(one))).join("; ");
  const refused = "ECONNREFUSED";
  const code = error.errors.map(codeOf).find((one) => one !== undefined && one !== refused) ?? refused;
  return Object.assign(new Error(message, { cause: error }), { code });
}

/** An error with the driver's code for a lost connection, which means that the database is unavailable. */
export function connectionLost(message: string): Error {
  return Object.assign(new Error(message), { code: "CONNECTION_CLOSED" });
}

/** A commit whose wait for the synchronous standbys was cancelled, which PostgreSQL calls a success. */
function unconfirmed(): Error {
  const error = new Error("the synchronous standbys have not confirmed the commit");
  return Object.assign(error, { code: "CONNECTION_UNCONFIRMED" });
}
