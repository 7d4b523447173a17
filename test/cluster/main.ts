/**
 * `npm run cluster`: all of a deployment on this machine, until Ctrl+C. `-- --roll` restarts each process of it, one
 * after the other, while a client that never tries again makes 100,000 requests (`--requests N`: so many), and fails
 * if one of them does. `-- --upgrade` does so from the version before the newest migrations to this one, and back;
 * `-- --upgrade <commit>` from that one.
 */
import { join } from "node:path";
import { ROOT, say, usageIn } from "../../scripts/command.ts";
import { readArguments, refuseArguments } from "../../src/command.ts";
import { endChildrenAtExit, interruption } from "../chaos/ending.ts";
import { startNode } from "../support/program.ts";
import { type Cluster, makeDirectory, startCluster } from "./cluster.ts";
import { missingPrograms } from "./programs.ts";
import { rollOut, type Step } from "./roll-out.ts";
import { checkOut, commitBeforeMigrations } from "./versions.ts";

/** What runs where, and what to try. */
function screen({ directory, primary, standby, nats, redis, balancer, members }: Cluster): string {
  const row = (name: string, where: string, what: string) =>
    `    ${name.padEnd(12)} ${where.padEnd(18)} ${what}`;
  const addressOf = (url: string) => new URL(url).host;
  const rows = [
    row("HAProxy", addressOf(balancer.origin), "HTTP, Connect, gRPC-Web"),
    row("", balancer.grpc, "gRPC"),
    ...members.map(({ name, process: { origin, grpc, management } }) =>
      row(name, addressOf(origin), `gRPC ${grpc}, health and metrics ${addressOf(management)}`),
    ),
    row("PostgreSQL", addressOf(primary.url), "primary, user postgres"),
    row("", addressOf(standby.url), "standby, which introspection reads from"),
    ...nats.map(({ url }, index) => row(index === 0 ? "NATS" : "", addressOf(url), "")),
    row("Redis", `${redis.settings.host}:${redis.settings.port}`, ""),
  ];
  return `
  A cluster of gatepost is ready (development mode)

${rows.map((line) => line.trimEnd()).join("\n")}

    All that it keeps, with its logs: ${directory}

  Try it, in another terminal:

    GATEPOST_URL=${balancer.origin} GATEPOST_GRPC=${balancer.grpc} npm run demo

  Ctrl+C ends it, and removes all of it.

`;
}

const { values, positionals } = readArguments({
  usage: usageIn(import.meta.filename),
  options: { roll: { type: "boolean" }, upgrade: { type: "boolean" }, requests: { type: "string" } },
  operands: [0, 1],
});
const requests = Number(values.requests ?? 100_000);
if (!(requests > 0)) refuseArguments("--requests is greater than 0.");

/** Brings the database up to date as `npm run migrate` does, and says how long that took. */
async function migrate({ databaseEnvironment }: Cluster): Promise<void> {
  const started = performance.now();
  const program = startNode("src/migrate.ts", databaseEnvironment);
  if ((await program.ended()) !== 0) throw new Error(`The migration failed:\n${program.output()}`);
  say(`${program.output()}The migration took ${((performance.now() - started) / 1000).toFixed(1)} s.`);
}

process.chdir(ROOT);
const missing = missingPrograms();
if (missing !== undefined) {
  say(missing);
  process.exit(1);
}
endChildrenAtExit();
const interrupted = interruption().then(
  () => false,
  () => true,
);
await using cleanup = new AsyncDisposableStack();
const directory = makeDirectory();
const predecessor = values.upgrade ? (positionals[0] ?? (await commitBeforeMigrations())) : undefined;
if (values.upgrade && predecessor === undefined) {
  say("No version can be upgraded to this one until the next migration, as its history begins with it.");
  process.exit(1);
}
const before = predecessor ? cleanup.use(await checkOut(predecessor, join(directory, "before"))) : undefined;
say(
  "Starting PostgreSQL, a standby, three servers of NATS, Redis, HAProxy, and two processes of each service.",
);
if (before) say(`The processes are of ${before.title}.`);
const cluster = await startCluster(directory, before?.folder ?? ROOT);
cleanup.defer(() => cluster.stop());
const ours: Step = { title: "with this version", version: ROOT };
const round: readonly Step[] = before
  ? [
      { ...ours, prepare: () => migrate(cluster) },
      { title: "with the version before", version: before.folder },
    ]
  : [ours];
if (values.roll || before) {
  const rolled = rollOut(cluster, { requests, round, say });
  const isRight = await Promise.race([rolled, interrupted.then(() => false)]);
  process.exitCode = isRight ? 0 : 1;
} else {
  process.stdout.write(screen(cluster));
  await interrupted;
}
await cleanup.disposeAsync();
process.exit();
