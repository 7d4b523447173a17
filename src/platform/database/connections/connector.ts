import { setTimeout } from "node:timers/promises";
import type { Address } from "../settings.ts";
import type { Connection, ConnectionOptions, OnClose } from "./connection.ts";
import type { Hosts } from "./hosts.ts";
import { openConnection } from "./open-connection.ts";

/** Milliseconds between two attempts after a failure: at first, and at most. */
const shortestPauseMs = 50;
const longestPauseMs = 1_000;

/** Makes the connections of a pool one at a time; after a failure, after a growing pause of random length. */
export class Connector {
  readonly #hosts: Hosts;
  readonly #failed: () => void;
  #previous: Promise<unknown> = Promise.resolve();
  #failures = 0;
  /** When the next attempt may begin, by performance.now(). */
  #notBefore = 0;
  #failure: unknown;

  /** @param failed called after each attempt that failed */
  constructor(hosts: Hosts, failed: () => void) {
    this.#hosts = hosts;
    this.#failed = failed;
  }

  /** Why the last attempt failed; undefined once one has succeeded. */
  get failure(): unknown {
    return this.#failure;
  }

  /** Makes a connection that is ready for use. Calls at the same time are served in turn, each by its own attempt. */
  connect(options: (address: Address) => ConnectionOptions, onClose: OnClose): Promise<Connection> {
    const attempt = this.#previous.then(() => this.#attempt(options, onClose));
    this.#previous = attempt.catch(() => undefined);
    return attempt;
  }

  async #attempt(options: (address: Address) => ConnectionOptions, onClose: OnClose): Promise<Connection> {
    const pauseMs = this.#notBefore - performance.now();
    if (pauseMs > 0) await setTimeout(pauseMs, undefined, { ref: false });
    try {
      const connection = await openConnection(options(await this.#hosts.locate()), (closed, error) => {
        this.#hosts.closed(closed, error);
        onClose(closed, error);
      });
      this.#hosts.opened(connection);
      this.#failures = 0;
      this.#failure = undefined;
      return connection;
    } catch (error) {
      const longest = Math.min(shortestPauseMs * 2 ** this.#failures, longestPauseMs);
      this.#failures += 1;
      this.#failure = error;
      this.#notBefore = performance.now() + longest * (0.5 + Math.random() / 2);
      this.#failed();
      throw error;
    }
  }
}
