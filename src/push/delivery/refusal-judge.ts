/**
 * Judges whether it is the messages' fault or ours that a provider refuses them, or takes tokens for somebody else's.
 * Any user can register any token, and one user any number of them. So each user counts once: our project, topic or key
 * is judged the wrong one only if the tokens of most of many users are foreign, or if several users in a row are
 * refused.
 */
import type { Outcome } from "../providers/provider.ts";

/** Users that the judgement looks back on. */
const windowSize = 100;
/** Users that are needed for a judgement; fewer show nothing. */
const leastUsers = 50;
/** Users who are refused, without another one who is not, that are needed for a judgement. */
const severalUsers = 3;

export class RefusalJudge {
  /** Whether each user's last token was foreign, in the order of the responses. */
  readonly #users = new Map<string, boolean>();
  #foreign = 0;
  /** Users who were refused since the last response that took a token for ours. */
  readonly #refused = new Set<string>();

  /** Adds a response. @returns whether it is our fault */
  add(userId: string, kind: Exclude<Outcome["kind"], "retry" | "unavailable">): boolean {
    if (kind === "refused") return this.#refused.add(userId).size >= severalUsers;
    if (kind === "failed" || kind === "blocked") return false;
    const isForeign = kind === "foreign";
    if (!isForeign) this.#refused.clear();
    this.#remove(userId);
    this.#users.set(userId, isForeign);
    if (isForeign) this.#foreign += 1;
    const [oldest] = this.#users.size > windowSize ? this.#users.keys() : [];
    if (oldest !== undefined) this.#remove(oldest);
    return this.#users.size >= leastUsers && this.#foreign * 2 > this.#users.size;
  }

  clear(): void {
    this.#users.clear();
    this.#refused.clear();
    this.#foreign = 0;
  }

  #remove(userId: string): void {
    if (this.#users.get(userId) === true) this.#foreign -= 1;
    this.#users.delete(userId);
  }
}
