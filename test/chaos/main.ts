/**
 * `npm run test:chaos [-- --seconds 600] [-- --seed N] [-- --kills N]`: four push processes on a PostgreSQL of their own,
 * sends of all kinds, and troubles of all kinds at random. When they are over and all has been sent, what the providers
 * accepted is compared with the tables. It prints a table and fails if a line of it is red. With `--kills` there are
 * 200,000 devices, a send to all of them, 2,000 personal ones, and so many times kill -9 instead.
 */
import { writeFileSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import { ROOT, say, usageIn } from "../../scripts/command.ts";
import { readArguments, refuseArguments } from "../../src/command.ts";
import { createCalls } from "./calls.ts";
import { endChildrenAtExit, interruption } from "./ending.ts";
import { judgeRun } from "./evidence.ts";
import { type Fakes, providers } from "./fakes.ts";
import { redKinds, type Verdict } from "./judge.ts";
import { startKills } from "./kills.ts";
import { watchLag } from "./lag.ts";
import { Chance } from "./random.ts";
import { type Played, startTroubles, troubles } from "./troubles.ts";
import { type ProgressWatch, watchProgress } from "./watch.ts";
import { type Sent, startWork, type Work } from "./work.ts";
import { createWorld, type World } from "./world.ts";

/** Seconds that what is left may take once nothing troubles it: a device is retried after up to minutes. */
const settleSeconds = 420;

/** Milliseconds. What a run shows on a machine that is later than this is worth nothing, as so much is allowed. */
const maxLagMs = 5_000;

/** Devices that Google does not reach, as the project lacks a key for them. */
const barred = { tokenPrefix: "barred-", answer: "THIRD_PARTY_AUTH_ERROR" } as const;

function readOptions(): {
  readonly seconds: number;
  readonly seed: number;
  readonly logs: string | undefined;
  /** Undefined: troubles of all kinds. */
  readonly kills: number | undefined;
} {
  const { values } = readArguments({
    usage: usageIn(import.meta.filename),
    options: {
      ...{ seconds: { type: "string" }, seed: { type: "string" }, logs: { type: "string" } },
      kills: { type: "string" },
    },
  });
  const seconds = Number(values.seconds ?? 600);
  const seed = Number(values.seed ?? Math.floor(Math.random() * 0x1_0000_0000));
  const kills = values.kills === undefined ? undefined : Number(values.kills);
  if (kills !== undefined && !(Number.isInteger(kills) && kills > 0))
    refuseArguments("--kills is a whole number from 1.");
  if (!(seconds > 0) || !Number.isInteger(seed) || seed < 0)
    refuseArguments("--seconds is greater than 0, and --seed a whole number from 0.");
  return { seconds, seed, logs: values.logs, kills };
}

/** Waits until every notification has ended. @returns those that have not */
async function settle(sent: readonly Sent[]): Promise<readonly Sent[]> {
  const until = Date.now() + settleSeconds * 1_000;
  const open = () => sent.filter(({ isOver }) => !isOver);
  while (open().length > 0 && Date.now() < until) await pause(500);
  return open();
}

async function calm(fakes: Fakes): Promise<void> {
  await fakes.calm();
  await fakes.play("fcm", barred);
}

const iso = (at: number) => new Date(at).toISOString();

interface Run {
  readonly work: Work;
  readonly watch: ProgressWatch;
  readonly played: readonly Played[];
  readonly problems: ReadonlySet<string>;
  readonly unsettled: readonly Sent[];
  /** Milliseconds. */
  readonly longestLag: number;
  readonly verdict: Verdict;
}

async function play(world: World, seconds: number, seed: number, kills?: number): Promise<Run> {
  // One for each, so that the troubles of a seed do not depend on how fast callers are answered.
  const chance = (part: number) => new Chance(seed + part);
  await calm(world.fakes);
  const calls = createCalls(world, chance(1));
  const killing = kills === undefined ? undefined : startKills(world, calls, chance(3), kills);
  const work = killing ?? startWork(world, calls, chance(2));
  const watch = watchProgress(work, calls);
  const lag = watchLag(world);
  const running = killing ?? startTroubles(world, chance(3));
  if (!killing) await pause(seconds * 1_000);
  const played = await running.end();
  await work.end();
  await calm(world.fakes);
  for (const provider of providers) {
    await calls.send({ method: "POST", path: `/providers/${provider}/resume` });
  }
  say(`The troubles are over after ${played.length}; ${work.sent.length} notifications were sent.`);
  for (const { trouble, provider, startedAt, endedAt } of played)
    say(`  ${iso(startedAt)} to ${iso(endedAt)}: ${trouble.name}${provider ? `, ${provider}` : ""}`);
  const unsettled = await settle(work.sent);
  await watch.end();
  await lag.end();
  const verdict = await judgeRun(world.admin, world.fakes, work.sent, {
    ...{ played, lagAt: lag.at, longestLagMs: lag.longest() },
  });
  return { work, watch, played, problems: running.problems, unsettled, longestLag: lag.longest(), verdict };
}

/** @returns whether nothing is red */
function report({ work, watch, played, problems, unsettled, longestLag, verdict }: Run): boolean {
  const line = (what: string, figure: number | string, isRed = false) =>
    say(`${what.padEnd(44)}${String(figure).padStart(12)}${isRed ? "  RED" : ""}`);
  say();
  for (const { name } of troubles) line(name, played.filter(({ trouble }) => trouble.name === name).length);
  say();
  for (const [what, count] of work.done) line(what, count);
  line("looks at their progress", watch.looks());
  say();
  line("messages", verdict.messages);
  for (const [why, count] of verdict.repeats) line(`repeats, ${why}`, count);
  line("most messages within a second", verdict.peakPerSecond);
  line("longest that the machine was late", `${longestLag} ms`);
  line("latest message after a pause or cancelling", `${verdict.latestAfterStop} ms`);
  const found = redKinds.map((kind) => ({ kind, ...(verdict.red.get(kind) ?? { count: 0, first: [] }) }));
  const red = [
    ...found,
    { kind: "progress wrong", count: watch.wrong.size, first: [...watch.wrong].slice(0, 5) },
    { kind: "answered wrongly", count: work.wrong.size, first: [...work.wrong].slice(0, 5) },
    { kind: "troubles that went wrong", count: problems.size, first: [...problems].slice(0, 5) },
    { kind: "too late to judge", count: Number(longestLag > maxLagMs), first: [] },
    { kind: "not over", count: unsettled.length, first: unsettled.slice(0, 5).map(({ id }) => id) },
  ];
  for (const { kind, count, first } of red) {
    line(kind, count, count > 0);
    for (const what of first) say(`    ${what}`);
  }
  const failed = red.filter(({ count }) => count > 0).length;
  say(`${red.length - failed} passed, ${failed} failed`);
  return failed === 0;
}

process.chdir(ROOT);
const { seconds, seed, logs, kills } = readOptions();
say(
  `Chaos ${kills === undefined ? `for ${seconds} s` : `of ${kills} kills`}; --seed ${seed} repeats what is drawn.`,
);
endChildrenAtExit();
const interrupted = interruption();
const size = kills === undefined ? { devices: 50_000, users: 20_000 } : { devices: 200_000, users: 100_000 };
const world = await createWorld(size);
let isFine = false;
try {
  say(`${world.members.length} processes are up.`);
  isFine = report(await Promise.race([play(world, seconds, seed, kills), interrupted]));
} finally {
  for (const { name, process, formerLogs } of world.members) {
    const log = formerLogs + process.logs();
    if (logs !== undefined) writeFileSync(`${logs}-${name}.log`, log);
    // What was answered 500 is said there only. That a provider lacks something is what is played.
    const entries = log.split(/^(?=\[\d\d:\d\d:\d\d)/m);
    const errors = entries.filter((entry) => /^\S+ ERROR: (?!The push provider lacks)/.test(entry));
    if (!isFine) for (const entry of errors.slice(0, 20)) say(`${name}: ${entry}`);
  }
  await world.close();
}
process.exit(isFine ? 0 : 1);
