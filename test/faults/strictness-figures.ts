/** What was seen in a state of a standby, and whether it proves anything. */
import { percentiles } from "../bench/percentiles.ts";
import type { Look } from "./looks.ts";

/** Looks at what has ended: as soon as that is acknowledged, and again and again afterwards. */
export const lookKinds = ["first", "later"] as const;
export type LookKind = (typeof lookKinds)[number];

/** The primary is there in every state, so that most looks and most endings find what they need. */
const minShare = 0.5;

const percent = (share: number) => `${(share * 100).toFixed(share > 0.99 && share < 1 ? 1 : 0)} %`;

export class Figures {
  ended = 0;
  /** Tokens whose end was asked for by a request of their own, and acknowledged. */
  #endings = 0;
  /** Of these, those that were refused at first. */
  #retried = 0;
  /** The most refusals before an acknowledgement. */
  #mostRefusals = 0;
  /** All refusals; their callers tried again. */
  #refusals = 0;
  active = 0;
  readonly #looks = { first: { all: 0, refused: 0 }, later: { all: 0, refused: 0 } };
  /** Milliseconds of the requests that were acknowledged. */
  readonly #ms: number[] = [];

  /** @param refused how often, before it was acknowledged @param ms of the request that was */
  countEnding(refused: number, ms: number): void {
    this.ended += 1;
    this.#endings += 1;
    if (refused > 0) this.#retried += 1;
    this.#refusals += refused;
    this.#mostRefusals = Math.max(this.#mostRefusals, refused);
    this.#ms.push(ms);
  }

  countLook(kind: LookKind, outcome: Look["outcome"]): void {
    const looks = this.#looks[kind];
    looks.all += 1;
    if (outcome === "refused") looks.refused += 1;
    if (outcome === "active") this.active += 1;
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
    const atOnce = 1 - this.#retried / this.#endings;
    // Not where there is none at all, either.
    if (!(atOnce >= minShare))
      found.push(
        `only ${this.#endings - this.#retried} of ${this.#endings} endings were not refused at first`,
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
      `${p50.toFixed(0)} ms`,
      `${p99.toFixed(0)} ms`,
      ...lookKinds.flatMap((kind) => [String(this.#looks[kind].all), percent(this.#answered(kind))]),
      String(this.active),
    ];
  }
}
