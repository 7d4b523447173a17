/**
 * Judges by users whether tokens that a provider takes for somebody else's are their own fault or ours. Any user can
 * register any token, and one user any number of them; so each user counts once, and only most of many users show that
 * our project, topic or key is the wrong one.
 */

/** Users that the judgement looks back on. */
const windowSize = 100;
/** Fewer users than these show nothing. */
const leastUsers = 50;

export class RefusalJudge {
  /** Whether the user's last token was foreign; the user who was answered last is the last entry. */
  readonly #users = new Map<string, boolean>();
  #foreign = 0;

  /** Adds an answer. @returns whether most of the last users got `foreign` */
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
