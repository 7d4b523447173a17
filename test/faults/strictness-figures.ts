/** What was seen in a state of a standby, each time that it was played, and whether that proves anything. */
import { longestLeaseMs } from "../../src/platform/database/standbys/leases.ts";
import { percentiles } from "../bench/percentiles.ts";
import type { Asked } from "./endings.ts";
import type { Look } from "./looks.ts";

/** Looks at what has ended: as soon as that is acknowledged, and again and again afterwards. */
export const lookKinds = ["first", "later"] as const;
export type LookKind = (typeof lookKinds)[number];

/** The primary is there in every state, so that most looks and most endings find what they need. */
const minShare = 0.5;
/**
 * Milliseconds that most endings may take, beside those for which commits waited for a standby. It waits 2.2 seconds until
 * the leases of a standby that was taken out have run out; where three times as much as its two cores can do was asked of
 * the machine, half took less than two seconds.
 */
const promptMs = 5_000;
/**
 * Milliseconds within which every ending is acknowledged that is asked for once commits wait for the standby no more. A
 * machine that has no time takes longer, also where all is well: then it may be as long as there, and a lease longer.
 */
const recoveredMs = 5_000;
/**
 * Milliseconds that any request of an ending may take, whatever it waits for: the service responds 503 after ten seconds,
 * and a busy machine is late. A caller gives up later than that: its patience must be longer, or nothing ever hangs.
 */
const hungMs = 12_000;

const percent = (share: number) => `${(share * 100).toFixed(share > 0.99 && share < 1 ? 1 : 0)} %`;

const inMs = (ms: number) => `${ms.toFixed(0)} ms`;

/** Looks of a kind. */
interface Looked {
  all: number;
  refused: number;
}

/** The share of looks that were not refused; 0 if there were none. */
const answeredOf = ({ all, refused }: Looked) => (all === 0 ? 0 : (all - refused) / all);

/** The figures of a state, played once: that all is well in one round makes up for nothing in another. */
export class Figures {
  ended = 0;
  /** Endings that were asked for while the state lasted, by a request of their own. */
  #endings = 0;
  /** How many of these were acknowledged at the first request, and soon. */
  #prompt = 0;
  /** Milliseconds until the slowest ending was acknowledged that was asked for while the state lasted. */
  slowestMs = 0;
  /** Milliseconds of each ending that was asked for while the state lasted, once commits waited for the standby no more. */
  readonly #afterChangeMs: number[] = [];
  /** Endings of which a request hung. */
  #hung = 0;
  /** Milliseconds of the longest request of an ending. */
  #longestMs = -Infinity;
  /** The most refusals before an acknowledgement. */
  #mostRefusals = 0;
  /** All refusals; their callers tried again. */
  #refusals = 0;
  active = 0;
  /** The looks that began while the state lasted. */
  readonly #looks: Readonly<Record<LookKind, Looked>> = {
    first: { all: 0, refused: 0 },
    later: { all: 0, refused: 0 },
  };
  /** Milliseconds of the requests that acknowledged an ending which was asked for while the state lasted. */
  readonly #ms: number[] = [];

  /**
   * Counts an ending that was acknowledged.
   * @param isWithin whether it was asked for while the state lasted: before it and after it all is well
   * @param waitedUntil when commits ceased to wait for the standby, by performance.now(): what is asked for later waits
   *   for nobody; Infinity while they wait; 0 in a state in which that does not change
   */
  countEnding(
    {
      askedAt,
      refused,
      ms,
      longestMs,
      totalMs,
    }: Pick<Asked, "askedAt" | "refused" | "ms" | "longestMs" | "totalMs">,
    isWithin: boolean,
    waitedUntil: number,
  ): void {
    this.ended += 1;
    if (isWithin) {
      const waitMs = Math.max(0, waitedUntil - askedAt);
      this.#endings += 1;
      if (refused === 0 && ms <= waitMs + promptMs) this.#prompt += 1;
      this.#ms.push(ms);
      this.slowestMs = Math.max(this.slowestMs, totalMs);
      if (waitedUntil > 0 && askedAt >= waitedUntil) this.#afterChangeMs.push(totalMs);
    }
    if (longestMs > hungMs) this.#hung += 1;
    this.#longestMs = Math.max(this.#longestMs, longestMs);
    this.#refusals += refused;
    this.#mostRefusals = Math.max(this.#mostRefusals, refused);
  }

  /** @param isWithin whether it began while the state lasted */
  countLook(kind: LookKind, outcome: Look["outcome"], isWithin: boolean): void {
    if (outcome === "active") this.active += 1;
    if (!isWithin) return;
    const looks = this.#looks[kind];
    looks.all += 1;
    if (outcome === "refused") looks.refused += 1;
  }

  /**
   * Why it proves nothing; in words.
   * @param usualMs how long the slowest ending took while all was well, on this machine
   */
  objections(usualMs = 0): string[] {
    const found = lookKinds
      .filter((kind) => answeredOf(this.#looks[kind]) < minShare)
      .map((kind) => `only ${percent(answeredOf(this.#looks[kind]))} of the ${kind} looks were answered`);
    // Not where there is none at all, either.
    if (!(this.#prompt / this.#endings >= minShare))
      found.push(
        `only ${this.#prompt} of ${this.#endings} endings were neither refused at first nor took ${promptMs / 1_000} s longer than commits waited`,
      );
    const allowedMs = Math.max(recoveredMs, longestLeaseMs + usualMs);
    const late = this.#afterChangeMs.filter((ms) => ms > allowedMs);
    if (late.length > 0)
      found.push(
        `${late.length} of ${this.#afterChangeMs.length} endings took longer than ${inMs(allowedMs)}, though commits waited for the standby no more: at most ${inMs(Math.max(...late))}`,
      );
    if (this.#hung > 0)
      found.push(
        `${this.#hung} endings hung for more than ${hungMs / 1_000} s, at most ${inMs(this.#longestMs)}`,
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

  /** The line of a state. @param rounds in each of which it was played */
  static row(name: string, rounds: readonly Figures[]): string[] {
    const sum = (of: (round: Figures) => number) => rounds.reduce((total, round) => total + of(round), 0);
    const most = (of: (round: Figures) => number) => Math.max(...rounds.map(of));
    const { p50, p99 } = percentiles(rounds.flatMap((round) => round.#ms));
    const looked = (kind: LookKind): Looked => ({
      all: sum((round) => round.#looks[kind].all),
      refused: sum((round) => round.#looks[kind].refused),
    });
    return [
      name,
      String(sum((round) => round.ended)),
      String(sum((round) => round.#refusals)),
      String(most((round) => round.#mostRefusals)),
      // Of none, nothing is known.
      ...[p50, p99, most((round) => round.#longestMs)].map((ms) => (Number.isFinite(ms) ? inMs(ms) : "none")),
      ...lookKinds.map(looked).flatMap((looks) => [String(looks.all), percent(answeredOf(looks))]),
      String(sum((round) => round.active)),
    ];
  }
}
