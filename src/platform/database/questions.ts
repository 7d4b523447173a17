/** What hosts say of themselves when they are asked, some of them late, and what each of them said last. */
import { sqlState } from "../base/database-errors.ts";
import { codeOf } from "../base/error-code.ts";
import type { Found, Standing } from "./choose-primary.ts";
import type { Address } from "./settings.ts";

/** What became of asking a host. */
export type Reply = Found | { readonly address: Address; readonly error: unknown };

interface Before {
  /** When the host was asked, by performance.now(). */
  readonly askedAt: number;
  /** What it said last; undefined where it has been away since. */
  readonly standing: Standing | undefined;
}

/**
 * How many questions of searches a host may have at a time. A search takes half a second at least where a host hangs,
 * and a question two at most: so a third one waits for a second and a half at most, and mostly for none.
 */
const maxOfSearches = 2;

export class Questions {
  readonly #askStanding: (address: Address) => Promise<Standing>;
  readonly #hear: (standing: Standing) => void;
  readonly #before = new Map<Address, Before>();
  /** Those of searches to each host that have not ended. */
  readonly #ofSearches = new Map<Address, Set<Promise<Reply>>>();

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
      return { address, standing };
    } catch (error) {
      if (isAway(error)) this.#remember(address, { standing: undefined, askedAt });
      return { address, error };
    }
  }

  /**
   * As {@link ask}, once fewer than two questions of searches before are in flight. What the host says to those is no
   * reply to this one.
   * @param isOver whether the search no longer waits
   * @returns undefined if it does not by then
   */
  async askInSearch(address: Address, isOver: AbortSignal): Promise<Reply | undefined> {
    const inFlight = this.#ofSearches.get(address) ?? new Set();
    this.#ofSearches.set(address, inFlight);
    while (inFlight.size >= maxOfSearches) await Promise.race(inFlight);
    if (isOver.aborted) return undefined;
    const reply = this.ask(address).finally(() => inFlight.delete(reply));
    inFlight.add(reply);
    return reply;
  }

  /**
   * What the host said last, if it has not been away since.
   * @param since undefined as well unless it was asked after this, by performance.now()
   */
  before(address: Address, since = 0): Standing | undefined {
    const before = this.#before.get(address);
    return before && before.askedAt > since ? before.standing : undefined;
  }

  /** It was noticed otherwise that the host is away. */
  gone(address: Address): void {
    this.#remember(address, { standing: undefined, askedAt: performance.now() });
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
