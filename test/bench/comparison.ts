/** Ceilings and checkouts in turns, and the lines that say how they compare. */
import type { Contestant, Contestants } from "./contestants.ts";
import { median, quantile } from "./percentiles.ts";
import type { Measured } from "./processes.ts";
import { print, showProgress } from "./progress.ts";

/** Of a measurement. */
export const seconds = process.env["BENCH_SECONDS"] ?? "2";
export const rounds = Number(process.env["BENCH_ROUNDS"] ?? 7);
/** Of use, before the first round. */
const warmUpSeconds = "10";

export const verdict = (isMet: boolean) => (isMet ? "met" : "NOT met");
export const percent = (value: number) => (value * 100).toFixed(1);
export const quartilesOf = (ratios: readonly number[]) =>
  `quartiles ${percent(quantile(ratios, 0.25))} to ${percent(quantile(ratios, 0.75))} %`;
const rateOf = (figures: readonly Measured[]) =>
  `${Math.round(median(figures.map(({ perSecond }) => perSecond)))
    .toLocaleString("en-US")
    .padStart(8)}/s`;
const p99Of = (figures: readonly Measured[]) => median(figures.map(({ p99 }) => p99 ?? 0));
const timesOf = (figures: readonly Measured[]) =>
  `p50 ${median(figures.map(({ p50 }) => p50 ?? 0)).toFixed(2)} ms  ` + `p99 ${p99Of(figures).toFixed(2)} ms`;

/** What a line of the output is about. */
export interface Subject {
  readonly name: string;
  readonly aims?: { readonly share: number; readonly p99Ms?: number };
  readonly ceiling?: (first: Contestant) => Promise<Measured>;
  readonly product: (contestant: Contestant, duration: string) => Promise<Measured>;
  /** Whether the other checkout need not have it. */
  readonly isNew?: boolean;
}

/** By the rounds. */
export interface Figures {
  readonly ceilings: Measured[];
  readonly products: Measured[];
  readonly others: Measured[];
}

/**
 * Ceilings and product in turns, many short ones, as a machine with neighbours is slow and fast for seconds at a
 * time. Every figure is the median of its rounds', so the share is not the quotient of the rates beside it. V8 goes on
 * compiling until it has seen a thing some ten thousand times, hence the warm-up: a server is measured as it runs,
 * not as it starts.
 */
export async function compare(subjects: readonly Subject[], [first, other]: Contestants): Promise<Figures[]> {
  const played = subjects.map((): Figures => ({ ceilings: [], products: [], others: [] }));
  const without = new Set<Subject>();
  for (const subject of subjects) {
    showProgress(`${subject.name}: warming up`);
    await subject.product(first, warmUpSeconds);
    if (other !== undefined)
      await subject.product(other, warmUpSeconds).catch((error) => {
        if (!subject.isNew) throw error;
        without.add(subject);
      });
    await subject.ceiling?.(first);
  }
  for (let round = 1; round <= rounds; round += 1) {
    for (const [index, subject] of subjects.entries()) {
      showProgress(`${subject.name}: round ${round} of ${rounds}`);
      if (subject.ceiling) played[index]?.ceilings.push(await subject.ceiling(first));
      played[index]?.products.push(await subject.product(first, seconds));
      if (other && !without.has(subject)) played[index]?.others.push(await subject.product(other, seconds));
    }
  }
  showProgress("");
  for (const [index, subject] of subjects.entries()) {
    const figures = played[index];
    if (figures) printLine(subject, figures, [first, other]);
  }
  return played;
}

/** The share of each round. */
export const shares = (ones: readonly Measured[], others: readonly Measured[]) =>
  others.map((figure, round) => (ones[round]?.perSecond ?? 0) / figure.perSecond);

function printLine(
  { name, aims }: Subject,
  { ceilings, products, others }: Figures,
  [first, other]: Contestants,
) {
  const ratios = shares(products, ceilings);
  const aimed = aims ? `  (aim ${aims.share * 100} %: ${verdict(median(ratios) >= aims.share)})` : "";
  const ofCeiling =
    ceilings.length === 0
      ? ""
      : ` of ${rateOf(ceilings)}: ${percent(median(ratios)).padStart(5)} %${aimed}  ${quartilesOf(ratios)}`;
  const p99Verdict =
    aims?.p99Ms === undefined
      ? ""
      : ` (aim: below ${aims.p99Ms} ms: ${verdict(p99Of(products) < aims.p99Ms)})`;
  print(`${name.padEnd(36)}${rateOf(products)}${ofCeiling}  ${timesOf(products)}${p99Verdict}`);
  if (other === undefined) return;
  const beside = shares(products, others);
  print(
    `  beside ${other.name}`.padEnd(36) +
      (others.length === 0
        ? "     n/a: it does not respond to this"
        : `${rateOf(others)}: ${first.name} does ${percent(median(beside))} % of it  ${quartilesOf(beside)}  ${timesOf(others)}`),
  );
}
