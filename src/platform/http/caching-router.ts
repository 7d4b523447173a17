/** Hono's router with a cache of the results for registered paths without parameters; callers cannot make it grow. */
import { METHODS } from "node:http";
import type { Result, Router } from "hono/router";
import { TrieRouter } from "hono/router/trie-router";

export class CachingRouter<T> implements Router<T> {
  readonly name = "CachingRouter";
  readonly #router = new TrieRouter<T>();
  readonly #cache = new Map<string, Map<string, Result<T>>>();

  add(method: string, path: string, handler: T): void {
    this.#router.add(method, path, handler);
    if (!/[:*]/.test(path)) this.#cache.set(path, new Map());
    for (const results of this.#cache.values()) results.clear();
  }

  match(method: string, path: string): Result<T> {
    const results = this.#cache.get(path);
    const cached = results?.get(method);
    if (cached) return cached;
    const found = this.#router.match(method, path);
    if (results && METHODS.includes(method)) results.set(method, found);
    return found;
  }
}
