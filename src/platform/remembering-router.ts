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
  readonly #literal = new Set<string>();
  readonly #found = new Map<string, Result<T>>();

  add(method: string, path: string, handler: T): void {
    this.#router.add(method, path, handler);
    if (!/[:*]/.test(path)) this.#literal.add(path);
    this.#found.clear();
  }

  match(method: string, path: string): Result<T> {
    if (!this.#literal.has(path)) return this.#router.match(method, path);
    const key = `${method} ${path}`;
    const known = this.#found.get(key);
    if (known) return known;
    const found = this.#router.match(method, path);
    if (METHODS.includes(method)) this.#found.set(key, found);
    return found;
  }
}
