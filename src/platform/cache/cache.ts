/** A cache that processes share. What it keeps may be lost at any time, and it may be away: {@link unlessAway}. */

import type { Logger } from "pino";
import type { CacheObserver } from "../base/observers.ts";
import type { CacheSettings } from "./cache-settings.ts";

export interface CacheOptions {
  readonly settings: CacheSettings;
  /** Begins every key, as in `shop:orders:`. */
  readonly prefix: string;
  /** For operators: what the server calls this client, and what the log says is done while the cache is away. */
  readonly name: string;
  readonly whileAway: string;
  /** Does once what the cache is used for, on each new connection: a server that refuses a part is not used. */
  readonly rehearse: (cache: Pick<Cache, "run">) => Promise<unknown>;
  /** Milliseconds within which the server responds to a script, or to a check; 250 unless given. */
  readonly responseMs?: number;
  readonly logger: Logger;
  readonly observer: CacheObserver;
}

export interface Cache {
  /**
   * Runs a Lua script on the server as one step. @param keys without the prefix of this cache
   * @throws CacheAwayError at once while the cache is away, or within about {@link CacheOptions.responseMs}: then it
   * may run
   */
  run(script: string, keys: readonly string[], values: readonly (string | number)[]): Promise<unknown>;
  close(): Promise<void>;
}

/** The cache cannot be used now. */
export class CacheAwayError extends Error {
  override readonly name = "CacheAwayError";
}

/** Does the work with the cache, or if that is away, the other. */
export async function unlessAway<T>(work: () => Promise<T>, other: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof CacheAwayError) return await other();
    throw error;
  }
}
