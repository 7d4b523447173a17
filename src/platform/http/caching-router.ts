/**
 * Hono's router, asked once for each method and path that is registered as it stands, without parameters: it
 * looks through its tree, segment by segment, at every request. Other paths, and methods that HTTP does not know, are
 * asked for each time, so that what is remembered does not grow with what callers think of.
 */
import { METHODS } from "node:http";
import type { Result, Router } from "hono/router";
import { TrieRouter } from "hono/router/trie-router";

export class RememberingRouter<T> implements Router<T> {
  readonly name = "RememberingRouter";
  readonly #router = new TrieRouter<T>();
  /** By path and method. */
  readonly #found = new Map<string, Map<string, Result<T>>>();

  add(method: string, path: string, handler: T): void {
    this.#router.add(method, path, handler);
    if (!/[:*]/.test(path)) this.#found.set(path, new Map());
    for (const results of this.#found.values()) results.clear();
  }

  match(method: string, path: string): Result<T> {
    const results = this.#found.get(path);
    const remembered = results?.get(method);
    if (remembered) return remembered;
    const found = this.#router.match(method, path);
    if (results && METHODS.includes(method)) results.set(method, found);
    return found;
  }
}
