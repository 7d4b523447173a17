/**
 * Judges whether it is the tokens' fault or ours that a provider takes tokens for somebody else's. Any user can
 * register any token, and one user any number of them. So each user counts once, and our project, topic or key is
 * judged the wrong one only if the tokens of most of many users are refused.
 */

/** Users that the judgement looks back on. */
const windowSize = 100;
/** Users that are needed for a judgement; fewer show nothing. */
const leastUsers = 50;

export class RefusalJudge {
  /** Whether each user's last token was foreign, in the order of the responses. */
  readonly #users = new Map<string, boolean>();
  #foreign = 0;

  /** Adds a response. @returns whether the tokens of most of the last users were foreign */
  add(userId: string, isForeign: boolean): boolean {
    this.#remove(userId);
    this.#users.set(userId, isForeign);
    if (isForeign) this.#foreign += 1;
    const [oldest] = this.#users.size > windowSize ? this.#users.keys() : [];
    if (oldest !== undefined) this.#remove(oldest);
    return this.#users.size >= leastUsers && this.#foreign * 2 > this.#users.size;
  }

  clear(): void {
    this.#users.clear();
    this.#foreign = 0;
  }

  #remove(userId: string): void {
    if (this.#users.get(userId) === true) this.#foreign -= 1;
    this.#users.delete(userId);
  }
}
