/** What hosts say of themselves when they are asked, some of them late, and what each of them said last. */
import { sqlState } from "../base/database-errors.ts";
import { codeOf } from "../base/error-code.ts";
import type { Found, Standing } from "./choose-primary.ts";
import type { Address } from "./settings.ts";

/** Milliseconds for which a search takes over a question of one before: it takes two seconds, a pause between them one. */
const keptMs = 3_000;

/** What became of asking a host. */
export type Reply = (Found | { readonly address: Address; readonly error: unknown }) & Asked;

interface Asked {
  /** When the host was asked, by performance.now(). */
  readonly askedAt: number;
}

/** What a host said last; undefined where it has been away since. */
interface Before extends Asked {
  readonly standing: Standing | undefined;
}

interface Question extends Asked {
  readonly reply: Promise<Reply>;
}

export class Questions {
  readonly #askStanding: (address: Address) => Promise<Standing>;
  readonly #hear: (standing: Standing) => void;
  readonly #before = new Map<Address, Before>();
  /** Of searches: those without a reply, and those whose reply came too late. */
  readonly #unused = new Map<Address, Question>();

  /**
   * @param askStanding asks a host what it is, which takes two seconds at most
   * @param hear told of each reply at once, whoever asked, and however late it is
   */
  constructor(askStanding: (address: Address) => Promise<Standing>, hear: (standing: Standing) => void) {
    this.#askStanding = askStanding;
    this.#hear = hear;
  }

  /** Never rejects. */
  async ask(address: Address): Promise<Reply> {
    const askedAt = performance.now();
    try {
      const standing = await this.#askStanding(address);
      this.#remember(address, { standing, askedAt });
      this.#hear(standing);
      return { address, askedAt, standing };
    } catch (error) {
      if (isAway(error)) this.#remember(address, { standing: undefined, askedAt });
      return { address, askedAt, error };
    }
  }

  /** As {@link ask}, but a host has one question of searches at a time: a reply may have been asked for before. */
  askInSearch(address: Address): Promise<Reply> {
    const earlier = this.#unused.get(address);
    const askedAt = performance.now();
    if (earlier && askedAt - earlier.askedAt < keptMs) return earlier.reply;
    const reply = this.ask(address);
    this.#unused.set(address, { askedAt, reply });
    return reply;
  }

  /** The search has taken it into account; the next one asks again. */
  use({ address }: Reply): void {
    this.#unused.delete(address);
  }

  /** What the host said last, if it has not been away since. */
  before(address: Address): Standing | undefined {
    return this.#before.get(address)?.standing;
  }

  /** Questions overlap: one from before says nothing about what has happened since. */
  #remember(address: Address, said: Before): void {
    if (said.askedAt >= (this.#before.get(address)?.askedAt ?? 0)) this.#before.set(address, said);
  }
}

const awayCodes =
  /^(ECONNREFUSED|EHOSTUNREACH|EHOSTDOWN|ENETUNREACH|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|CONNECT_TIMEOUT)$/;

/**
 * Whether this process gets no connection there, so that it waits for no word of it: a machine that is gone for good
 * would keep it waiting for ever. That proves nothing about others, who may reach the host. 57P03 is said by a server
 * that is starting, and by one that shuts down and lets its sessions go on.
 */
export function isAway(error: unknown): boolean {
  return sqlState(error) === "57P03" || awayCodes.test(codeOf(error) ?? "");
}

/** Whether the machine says that nobody listens: a server that has ended takes its sessions with it. */
export function hasRefused(error: unknown): boolean {
  return codeOf(error) === "ECONNREFUSED";
}
