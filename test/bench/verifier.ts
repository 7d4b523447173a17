/**
 * `npm run bench:verifier`: requests a second that an API responds to in each framework, bare, and with the verifier in
 * both of its modes, in the same rounds. The API has a core of its own; load, auth and PostgreSQL share the other one, so
 * that `strict`, which asks auth each time, is held down by auth there. The verifier is packed and installed beside the
 * frameworks in a temporary folder, which takes the registry. Needs PostgreSQL: this machine's, or TEST_POSTGRES_URL.
 *
 *   BENCH_ROUNDS=3  BENCH_SECONDS=3
 */
import { readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { usageIn } from "../../scripts/command.ts";
import { readArguments } from "../../src/command.ts";
import { type Framework, frameworks, installApis } from "../packages/verifier/installed-apis.ts";
import { installPostgresql } from "../support/postgresql/binaries.ts";
import { postgresUrl, providePostgresql } from "../support/postgresql/server.ts";
import { columns } from "../support/table.ts";
import { median } from "./percentiles.ts";
import { introspector, issuer, prepare } from "./prepare.ts";
import { measure, startBenchServer } from "./processes.ts";
import { ports, startProduct } from "./product.ts";

readArguments({ usage: usageIn(import.meta.filename), options: {} });

const rounds = Number(process.env["BENCH_ROUNDS"] ?? 3);
const seconds = process.env["BENCH_SECONDS"] ?? "3";
const modes = ["bare", "keys", "strict"] as const;
type Mode = (typeof modes)[number];
const inFlight = 64;
const print = (line: string) => process.stdout.write(`${line}\n`);
const number = (value: number) => Math.round(value).toLocaleString("en-US");

await using cleanup = new AsyncDisposableStack();
const stopPostgresql = await providePostgresql({ durable: true });
cleanup.defer(() => stopPostgresql());
if (!postgresUrl()) {
  print(`The benchmark needs PostgreSQL. ${installPostgresql}`);
  process.exit(1);
}
const preparation = await prepare(2_000, () => undefined);
cleanup.defer(() => preparation.database.drop());
cleanup.defer(() => rmSync(preparation.directory, { recursive: true, force: true }));
const folder = await installApis(cleanup);
const auth = await startProduct(preparation, 0, {}, undefined, 1);
cleanup.defer(() => auth.stop());

async function perSecond(framework: Framework, mode: Mode): Promise<number> {
  const file = join(folder, "address");
  rmSync(file, { force: true });
  const address = () => readFileSync(file, "utf8");
  const of = [`http://127.0.0.1:${ports.http}/api/auth`, issuer, introspector.id, introspector.secret];
  const isUp = async () => address() !== "";
  const api = await startBenchServer(join(folder, "measured.ts"), [framework, mode, ...of, file], {}, isUp);
  try {
    const [, port = ""] = /:(\d+)$/.exec(address()) ?? [];
    const protocol = { "grpc-js": "api-grpc", connect: "api-connect" }[String(framework)] ?? "api-http";
    const args = [protocol, port, "", preparation.tokens, String(inFlight), seconds];
    return (await measure(1, "load-closed.ts", args)).perSecond;
  } finally {
    await api.stop();
  }
}

const rates = new Map(
  frameworks.flatMap((framework) => modes.map((mode) => [`${framework} ${mode}`, [] as number[]])),
);
for (let round = 0; round < rounds; round += 1)
  for (const framework of frameworks)
    for (const mode of modes) rates.get(`${framework} ${mode}`)?.push(await perSecond(framework, mode));

print(`Requests a second, ${inFlight} in flight; medians of ${rounds} rounds.\n`);
const rows = frameworks.map((framework) => {
  const [bare = 0, ...others] = modes.map((mode) => median(rates.get(`${framework} ${mode}`) ?? []));
  const shares = others.map((rate) => `${number(rate)} (${Math.round((100 * rate) / bare)} %)`);
  return [framework, number(bare), ...shares];
});
for (const line of columns([["", ...modes], ...rows])) print(line);
