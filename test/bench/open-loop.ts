/** How long responses take in an open loop, at shares of the capacity. */
import type { Contestant, Contestants } from "./contestants.ts";
import { median } from "./percentiles.ts";
import { run } from "./processes.ts";
import { print, showProgress } from "./progress.ts";

/** Of the capacity. */
const openShares = [0.5, 0.8];
const openRounds = 3;
const openSeconds = 4;

interface OpenPhase {
  readonly offered: number;
  readonly good: number;
  readonly late: number;
  readonly p50: number;
  readonly p99: number;
  readonly p999: number;
  readonly failure?: string;
}

/** How long responses take, from when each request was due, at shares of what each contestant could do. */
export async function printOpen(
  name: string,
  capacities: readonly number[],
  load: (contestant: Contestant) => readonly string[],
  contestants: Contestants,
): Promise<void> {
  const played = contestants.map((): OpenPhase[][] => []);
  for (let round = 1; round <= openRounds; round += 1) {
    for (const [index, contestant] of contestants.entries()) {
      const capacity = capacities[index];
      if (!contestant || !capacity) continue;
      showProgress(`${name}: round ${round} of ${openRounds}`);
      const plan = [0.5, ...openShares].map(
        (share, phase) => `${Math.round(share * capacity)}x${phase === 0 ? 2 : openSeconds}`,
      );
      const output = await run(1, "load-open.ts", [...load(contestant), plan.join(","), "256"]);
      const { phases }: { phases: OpenPhase[] } = JSON.parse(output);
      const [failure] = phases.flatMap((phase) => phase.failure ?? []);
      if (failure !== undefined) throw new Error(`${name}: a wrong answer: ${failure}`);
      played[index]?.push(phases.slice(1));
    }
  }
  showProgress("");
  for (const [index, contestant] of contestants.entries()) {
    if (!contestant || !capacities[index]) continue;
    const columns = openShares.map((share, phase) => {
      const all = played[index]?.flatMap((round) => round[phase] ?? []) ?? [];
      const of = (key: "p50" | "p99" | "p999") => median(all.map((figures) => figures[key])).toFixed(2);
      const unserved = all.reduce((sum, { offered, good, late }) => sum + offered - good - late, 0);
      const times = `p50 ${of("p50")}  p99 ${of("p99")}  p99.9 ${of("p999")} ms`;
      return `at ${share * 100} %  ${times}${unserved > 0 ? `  ${unserved} NOT served` : ""}`;
    });
    const title = index === 0 ? name : `  beside ${contestant.name}`;
    print(`${title.padEnd(36)}${columns.join("    ")}`);
  }
}
