/**
 * `npm run test:faults [-- <fault>… --short --rounds N]`: a deployment of the auth service on a PostgreSQL of its own, under
 * load, and one fault after the other. Afterwards what was acknowledged is compared with what is there. It prints a
 * table and fails if a line of it is red.
 */
import { performance } from "node:perf_hooks";
import { inspect } from "node:util";
import { ROOT, say, usageIn } from "../../scripts/command.ts";
import { readArguments, refuseArguments } from "../../src/command.ts";
import { columns } from "../support/table.ts";
import { brokerFaults } from "./broker-faults.ts";
import { startBystander } from "./bystander.ts";
import { cacheFaults } from "./cache-faults.ts";
import { callerFaults } from "./caller-faults.ts";
import { connectionFaults } from "./connection-faults.ts";
import { databaseFaults } from "./database-faults.ts";
import { failoverFaults } from "./failover-faults.ts";
import type { Fault } from "./fault.ts";
import { grant, HttpClient, introspection, member } from "./http-client.ts";
import { Ledger } from "./ledger.ts";
import { createLoad } from "./load.ts";
import { networkFaults } from "./network-faults.ts";
import { legend, measureUsual, objections, play, type Result, type Stage } from "./play.ts";
import { processFaults } from "./process-faults.ts";
import { strictness } from "./strictness.ts";
import { createWorld, type WorldOptions } from "./world.ts";

const faults: readonly Fault[] = [
  ...processFaults,
  ...databaseFaults,
  ...failoverFaults,
  ...connectionFaults,
  ...networkFaults,
  ...callerFaults,
  ...brokerFaults,
  ...cacheFaults,
  strictness,
];
/** What the bystander's identity is called. */
const bystanderId = "bystander";

/** Starts a deployment with its load. The stack ends them. */
async function openStage(
  options: WorldOptions,
  people: number,
  cleanup: AsyncDisposableStack,
): Promise<Stage> {
  const world = await createWorld(options);
  cleanup.defer(() => world.close());
  const { members, credentials } = world;
  const { origin } = members[0].process;
  const http = new HttpClient();
  const json = { id: bystanderId, phone: "+12015550123" };
  await http.send(origin, { method: "POST", path: "/v1/identities", as: credentials.internal, json });
  const token = grant(credentials.other, { grant_type: "auth", auth_id: bystanderId });
  const access = member(await http.send(origin, token), "access_token");
  http.close();
  if (access === "") throw new Error("the bystander got no token");
  const ledger = new Ledger();
  const load = createLoad(world, ledger, people);
  cleanup.defer(async () => load.close());
  const bystander = startBystander({
    origin,
    calls: {
      introspection: introspection(credentials.internal, access),
      token,
      change: {
        method: "PUT",
        path: `/v1/identities/${bystanderId}`,
        as: credentials.internal,
        json: { metadata: { by: bystanderId } },
      },
    },
    everyMs: { introspection: 20, token: 50, change: 100 },
  });
  cleanup.defer(() => bystander.stop());
  return { world, ledger, load, bystander, usual: [] };
}

/** Plays faults that share a deployment. Rejects if one cannot be played to its end: the deployment is of no use then. */
async function playAll(group: readonly Fault[], isShort: boolean): Promise<void> {
  await using cleanup = new AsyncDisposableStack();
  const started = performance.now();
  const stage = await openStage(
    group[0]?.world?.() ?? { servers: isShort ? [{}, {}] : [{}, {}, {}] },
    isShort ? 5 : 16,
    cleanup,
  );
  await measureUsual(stage, isShort ? 2_000 : 10_000);
  say(
    `PostgreSQL and ${stage.world.members.length} servers are up and under load (${secondsSince(started)})`,
  );
  for (const fault of group.flatMap((one) =>
    Array.from({ length: givenRounds ?? (isShort ? 1 : (one.rounds ?? 1)) }, () => one),
  )) {
    say(`${fault.name}: ${fault.what}`);
    const from = performance.now();
    const result = await play(fault, stage, isShort).catch((cause: unknown) => {
      throw new Error(`${fault.name} could not be played to its end`, { cause });
    });
    results.push(result);
    const found = objections(result);
    say(`${found.length === 0 ? "ok    " : "FAILED"} ${fault.name} (${secondsSince(from)})`);
    for (const objection of found) say(`       ${objection}`);
    if (found.length > 0) for (const line of defects(stage)) say(`       ${line}`);
  }
  await stage.load.pause();
}

/** What the servers have logged as their own defects. */
function defects({ world: { members } }: Stage): string[] {
  return members.flatMap(({ name, process }) =>
    process
      .logs()
      .split("\n")
      .filter((line) => line.includes('"level":"error"'))
      .map((line) => `${name}: ${line}`),
  );
}

const secondsSince = (from: number) => `${((performance.now() - from) / 1_000).toFixed(1)} s`;

function table(results: readonly Result[]): string[] {
  const ms = (value: number) =>
    Number.isFinite(value) ? `${value.toFixed(value < 10 ? 1 : 0)} ms` : "refused";
  const rows = [
    [
      "Fault",
      "Acknowledged",
      "Lost",
      "Wrong",
      "Refused",
      "Bystander: worst",
      "p99",
      "usual p99",
      "Recovered after",
      "",
    ],
    ...results.map((result) => {
      const { fault, acknowledged, lost, wrong, refused, bystander, recoveryMs } = result;
      const isConcerned = fault.concerns === "everybody" ? " (concerned)" : "";
      return [
        fault.name,
        String(acknowledged),
        String(lost.length),
        String(wrong.length),
        String(refused),
        ms(bystander.worst),
        ms(bystander.p99) + isConcerned,
        ms(bystander.usual),
        `${(recoveryMs / 1_000).toFixed(1)} s`,
        objections(result).length === 0 ? "" : "RED",
      ];
    }),
  ];
  return columns(rows);
}

process.chdir(ROOT);
const { values: options, positionals: wanted } = readArguments({
  usage: usageIn(import.meta.filename),
  options: { short: { type: "boolean", default: false }, rounds: { type: "string" } },
  operands: [0, Number.POSITIVE_INFINITY],
});
const isShort = options.short;
const givenRounds = options.rounds === undefined ? undefined : Number(options.rounds);
if (givenRounds !== undefined && !(Number.isInteger(givenRounds) && givenRounds > 0))
  refuseArguments("--rounds is how often each fault is to be played, such as 10.");
const unknown = wanted.find((name) => !faults.some((fault) => fault.name === name));
if (unknown !== undefined)
  refuseArguments(`There is no fault ${unknown}; there are ${faults.map(({ name }) => name).join(", ")}.`);
const chosen = faults.filter(({ name, short }) =>
  wanted.length > 0 ? wanted.includes(name) : short || !isShort,
);

const results: Result[] = [];
const notPlayed: unknown[] = [];
const left: string[] = [];
const possible = chosen.filter((fault) => {
  const reason = fault.impossible?.();
  if (reason !== undefined) left.push(`${fault.name}: ${reason}`);
  return reason === undefined;
});
for (const group of Map.groupBy(possible, ({ world }) => world).values())
  await playAll(group, isShort).catch((error: unknown) => notPlayed.push(error));

say();
for (const line of table(results)) say(line);
say();
for (const line of legend) say(line);
for (const line of left) say(`Left out: ${line}.`);
for (const error of notPlayed) say(inspect(error));
const red = results.filter((result) => objections(result).length > 0).length;
const failed = red + notPlayed.length;
say(`${results.length - red} passed, ${failed} failed`);
process.exit(failed > 0 ? 1 : 0);
