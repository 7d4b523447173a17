/** What was seen in a state of a standby, and whether it proves anything. */
import { percentiles } from "../bench/percentiles.ts";
import type { Asked } from "./endings.ts";
import type { Look } from "./looks.ts";

/** Looks at what has ended: as soon as that is acknowledged, and again and again afterwards. */
export const lookKinds = ["first", "later"] as const;
export type LookKind = (typeof lookKinds)[number];

/** The primary is there in every state, so that most looks and most endings find what they need. */
const minShare = 0.5;
/**
 * Milliseconds that a request of an ending may take, beside those for which commits waited for a standby: most of them
 * and any of them. It waits 2.2 seconds until the leases of a standby that was taken out have run out; where three times
 * as much as its two cores can do was asked of the machine, half took less than two seconds, and the longest ten.
 */
const patienceMs = { most: 5_000, any: 10_000 };

const percent = (share: number) => `${(share * 100).toFixed(share > 0.99 && share < 1 ? 1 : 0)} %`;

const inMs = (ms: number) => `${ms.toFixed(0)} ms`;

export class Figures {
  ended = 0;
  /** Endings that were asked for while the state lasted, by a request of their own. */
  #endings = 0;
  /** Of these, those that were acknowledged at the first request, and soon. */
  #prompt = 0;
  /** Endings of which a request hung. */
  #hung = 0;
  /** Milliseconds of the longest request of an ending. */
  #longestMs = 0;
  /** The most refusals before an acknowledgement. */
  #mostRefusals = 0;
  /** All refusals; their callers tried again. */
  #refusals = 0;
  active = 0;
  /** Those that began while the state lasted. */
  readonly #looks = { first: { all: 0, refused: 0 }, later: { all: 0, refused: 0 } };
  /** Milliseconds of the requests that were acknowledged. */
  readonly #ms: number[] = [];

  /**
   * Counts an ending that was acknowledged.
   * @param isWithin whether it was asked for while the state lasted: before it and after it all is well
   * @param waitMs for which commits waited for the standby, as nobody took it out
   */
  countEnding(
    { refused, ms, longestMs }: Pick<Asked, "refused" | "ms" | "longestMs">,
    isWithin: boolean,
    waitMs: number,
  ): void {
    this.ended += 1;
    if (isWithin) this.#endings += 1;
    if (isWithin && refused === 0 && ms <= waitMs + patienceMs.most) this.#prompt += 1;
    if (longestMs > waitMs + patienceMs.any) this.#hung += 1;
    this.#longestMs = Math.max(this.#longestMs, longestMs);
    this.#refusals += refused;
    this.#mostRefusals = Math.max(this.#mostRefusals, refused);
    this.#ms.push(ms);
  }

  /** @param isWithin whether it began while the state lasted */
  countLook(kind: LookKind, outcome: Look["outcome"], isWithin: boolean): void {
    if (outcome === "active") this.active += 1;
    if (!isWithin) return;
    const looks = this.#looks[kind];
    looks.all += 1;
    if (outcome === "refused") looks.refused += 1;
  }

  /** Of the looks of a kind: those that told something. 0 if there were none. */
  #answered(kind: LookKind): number {
    const { all, refused } = this.#looks[kind];
    return all === 0 ? 0 : (all - refused) / all;
  }

  /** Why it proves nothing; in words. */
  objections(): string[] {
    const found = lookKinds
      .filter((kind) => this.#answered(kind) < minShare)
      .map((kind) => `only ${percent(this.#answered(kind))} of the ${kind} looks were answered`);
    // Not where there is none at all, either.
    if (!(this.#prompt / this.#endings >= minShare))
      found.push(
        `only ${this.#prompt} of ${this.#endings} endings were neither refused at first nor took ${patienceMs.most / 1_000} s longer than commits waited`,
      );
    if (this.#hung > 0)
      found.push(
        `${this.#hung} endings hung for more than ${patienceMs.any / 1_000} s longer than commits waited, at most ${inMs(this.#longestMs)}`,
      );
    return found;
  }

  static readonly heads: readonly string[] = [
    "State",
    "Ended",
    "refused",
    "most often",
    "p50",
    "p99",
    "longest",
    "First looks",
    "answered",
    "Later looks",
    "answered",
    "ACTIVE AFTER ITS END",
  ];

  row(name: string): string[] {
    const { p50, p99 } = percentiles(this.#ms);
    return [
      name,
      String(this.ended),
      String(this.#refusals),
      String(this.#mostRefusals),
      // Of none, nothing is known.
      ...[p50, p99, this.#longestMs].map((ms) => (this.#ms.length === 0 ? "none" : inMs(ms))),
      ...lookKinds.flatMap((kind) => [String(this.#looks[kind].all), percent(this.#answered(kind))]),
      String(this.active),
    ];
  }
}
