/**
 * Hono's router, asked once for each path that is registered as it stands, without parameters: it looks
 * through its tree, segment by segment, at every request. Other paths, and methods that HTTP does not know, are
 * asked for each time, so that what is remembered does not grow with what callers think of.
 */
import { METHODS } from "node:http";
import type { Result, Router } from "hono/router";
import { TrieRouter } from "hono/router/trie-router";

export class RememberingRouter<T> implements Router<T> {
  readonly name = "RememberingRouter";
  readonly #router = new TrieRouter<T>();
  /** What was found, by path and method. */
  readonly #literal = new Map<string, Map<string, Result<T>>>();

  add(method: string, path: string, handler: T): void {
    this.#router.add(method, path, handler);
    if (!/[:*]/.test(path)) this.#literal.set(path, new Map());
    for (const found of this.#literal.values()) found.clear();
  }

  match(method: string, path: string): Result<T> {
    const known = this.#literal.get(path);
    const before = known?.get(method);
    if (before) return before;
    const found = this.#router.match(method, path);
    if (METHODS.includes(method)) known?.set(method, found);
    return found;
  }
}
