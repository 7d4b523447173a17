/** Plays a fault under load, measures what the bystander notices, waits for the recovery, and compares. */
import { setTimeout } from "node:timers/promises";
import { type Bystander, type Kind, kinds, p99, type Sample } from "./bystander.ts";
import { compare } from "./compare.ts";
import type { Fault } from "./fault.ts";
import type { Ledger } from "./ledger.ts";
import type { Load } from "./load.ts";
import { longestRecoveryMs, quietMs, recoveryOf, troublesSince } from "./recovery.ts";
import type { World } from "./world.ts";

/** A deployment under load. */
export interface Stage {
  readonly world: World;
  readonly ledger: Ledger;
  readonly load: Load;
  readonly bystander: Bystander;
  /** What the bystander has measured in quiet times. */
  readonly usual: Sample[];
}

/** A line of the table. */
export interface Result {
  readonly fault: Fault;
  /** Whether the bystander's time is judged: the short form has too few requests, and continuous integration no time. */
  readonly isTimed: boolean;
  readonly acknowledged: number;
  readonly refused: number;
  readonly lost: readonly string[];
  readonly wrong: readonly string[];
  /** Milliseconds, during the fault and until all had recovered: of the kind of request that suffered most. */
  readonly bystander: {
    readonly kind: Kind;
    readonly worst: number;
    readonly p99: number;
    readonly usual: number;
  };
  /** Milliseconds after the fault's end. */
  readonly recoveryMs: number;
  /** What kept it from being recovered, in words. */
  readonly troubles: readonly string[];
}

const maxRecoveryMs = 5_000;
const maxSlowdown = 10;
const readinessEveryMs = 200;

export const legend = [
  "A line is red if anything acknowledged was lost or anything answered wrong, if nothing was acknowledged at all, if a",
  `request or a look at readiness was still refused ${maxRecoveryMs / 1_000} s after the fault's end, or took longer than`,
  `${quietMs / 1_000} s then, from that end on if it began before, or, where the fault does not concern the bystander, if its p99`,
  `was above ${maxSlowdown} times its usual one: that of the quiet times of the same run, under the same load, or of those`,
  "just before and after the fault, if it is higher: neighbours on the machine come and go. A refused request of the",
  "bystander counts as one that never ended. The short form shows the bystander, and does not judge it.",
];

/** Whether the fault was survived as it must be; in words if not. */
export function objections({
  fault,
  isTimed,
  acknowledged,
  lost,
  wrong,
  bystander,
  recoveryMs,
  troubles,
}: Result): string[] {
  const found: string[] = [];
  if (acknowledged === 0) found.push("nothing was acknowledged, so that nothing could be lost");
  if (lost.length > 0) found.push(`${lost.length} lost: ${summary(lost)}`);
  if (wrong.length > 0) found.push(`${wrong.length} wrong: ${summary(wrong)}`);
  if (recoveryMs > maxRecoveryMs)
    found.push([`recovered after ${(recoveryMs / 1_000).toFixed(1)} s`, ...troubles].join("; "));
  if (isTimed && fault.concerns === "others" && bystander.p99 > maxSlowdown * bystander.usual)
    found.push(
      `the bystander's p99 (${bystander.kind}) is ${(bystander.p99 / bystander.usual).toFixed(0)} times its usual`,
    );
  return found;
}

/** The different ones, with how often each was seen; ids and the like are left out. */
function summary(texts: readonly string[]): string {
  const counts = Map.groupBy(texts, (text) => text.slice(0, 200));
  return [...counts]
    .slice(0, 5)
    .map(([text, all]) => `${all.length} × ${text}`)
    .join("; ");
}

/** Measures the bystander while nothing happens. @returns what it has added to what is usual */
export async function measureUsual(
  { load, bystander, usual }: Stage,
  ms: number,
): Promise<readonly Sample[]> {
  load.start();
  // What begins with the load is not usual yet.
  await setTimeout(500);
  await bystander.take();
  await setTimeout(ms);
  const quiet = await bystander.take();
  usual.push(...quiet);
  return quiet;
}

export async function play(fault: Fault, stage: Stage, isShort: boolean): Promise<Result> {
  const { world, ledger, load, bystander } = stage;
  // What is usual is judged in the full form only.
  const usualMs = isShort ? 200 : 3_000;
  const before = await measureUsual(stage, usualMs);
  ledger.begin();
  const stopWatching = watchReadiness(stage);
  await fault.play({ world, ledger, isShort });
  const endedAt = performance.now();
  const [servedMs, restMs] = await Promise.all([
    recovered(ledger, endedAt),
    recoveredToo(fault.recovery?.({ world, ledger, isShort }), endedAt),
  ]);
  const recoveryMs = Math.max(servedMs, restMs);
  const troubles = [
    ...troublesSince(ledger.attempts, endedAt, performance.now()),
    ...(restMs > longestRecoveryMs ? ["what the fault itself looks at has not recovered"] : []),
  ];
  stopWatching();
  const samples = await bystander.take();
  const { acknowledged, attempts } = ledger;
  const after = await measureUsual(stage, usualMs);
  await fault.settle?.({ world, ledger, isShort });
  for (const { kind, outcome } of [...samples, ...after])
    if (outcome === "wrong") ledger.wrong.push(`bystander: ${kind}`);
  ledger.wrong.push(...(await load.pause()).map((what) => `still refused: ${what}`));
  await compare(world, ledger);
  ledger.shorten(isShort ? 20 : 100);
  const { lost, wrong } = ledger;
  const refused =
    attempts.filter(({ isRefused }) => isRefused).length +
    samples.filter(({ outcome }) => outcome === "refused").length;
  return {
    fault,
    isTimed: !isShort,
    acknowledged,
    refused,
    lost,
    wrong,
    recoveryMs,
    troubles,
    bystander: mostSlowed(samples, [stage.usual, [...before, ...after]]),
  };
}

/** What is refused in quiet times makes nothing usual. */
const isRight = ({ outcome }: Sample) => outcome === "right";

/** The kind of request whose p99 has grown most. @param quiet what may be taken as usual */
function mostSlowed(samples: readonly Sample[], quiet: readonly (readonly Sample[])[]): Result["bystander"] {
  const [most] = kinds
    .map((kind) => {
      const own = samples.filter((sample) => sample.kind === kind);
      const worst = Math.max(...own.map(({ ms }) => ms));
      return {
        kind,
        worst,
        p99: p99(own, kind),
        usual: Math.max(...quiet.map((some) => p99(some.filter(isRight), kind))),
      };
    })
    .sort((a, b) => b.p99 / b.usual - a.p99 / a.usual);
  if (!most) throw new Error("there is no kind of request");
  return most;
}

/** Asks every server again and again whether it is ready; a look at one that is not is refused. */
function watchReadiness({ world: { members }, ledger }: Stage): () => void {
  const timer = setInterval(() => {
    for (const { isUp, process } of members)
      if (isUp)
        void ledger.attempt(
          "readiness",
          () => look(process.management),
          (isReady) => !isReady,
        );
  }, readinessEveryMs);
  return () => clearInterval(timer);
}

/** @returns whether it says within some looks' time that it is ready */
function look(management: string): Promise<boolean> {
  const signal = AbortSignal.timeout(readinessEveryMs * 10);
  return fetch(`${management}/health/ready`, { signal }).then(
    async (response) => {
      await response.body?.cancel();
      return response.ok;
    },
    () => false,
  );
}

/** Waits until all has recovered, or nobody waits for it any more. @returns milliseconds since then */
async function recovered({ attempts }: Ledger, since: number): Promise<number> {
  for (;;) {
    await setTimeout(50);
    const now = performance.now();
    const recovery = recoveryOf(attempts, since, now);
    if (recovery !== undefined) return recovery;
    if (now - since > longestRecoveryMs) return now - since;
  }
}

/** Waits until it says so, or nobody waits for it any more. @returns milliseconds since then */
async function recoveredToo(
  hasRecovered: (() => Promise<boolean>) | undefined,
  since: number,
): Promise<number> {
  while (hasRecovered && performance.now() - since <= longestRecoveryMs) {
    if (await hasRecovered()) return performance.now() - since;
    await setTimeout(50);
  }
  return hasRecovered ? performance.now() - since : 0;
}
