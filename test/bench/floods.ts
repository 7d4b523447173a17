/**
 * `npm run bench:floods`: what becomes of a bystander while a client floods SERVER_PORT or GRPC_PORT over TLS with frames
 * of HTTP/2 that cost it little. The bystander introspects over gRPC, fifty times a second, on a connection of its own.
 *
 *   BENCH_SECONDS=15     BENCH_ONLY="PING,SETTINGS"
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { credentials } from "@grpc/grpc-js";
import { usageIn } from "../../scripts/command.ts";
import { readArguments } from "../../src/command.ts";
import { spawnAuthServer } from "../support/auth-server.ts";
import { GrpcClient, loadMethod } from "../support/grpc-client.ts";
import { floodNames, isAllowed } from "../support/http2-floods.ts";
import { localhostCertificate } from "../support/localhost-certificate.ts";
import { root } from "../support/program.ts";
import { columns } from "../support/table.ts";
import { percentiles } from "./percentiles.ts";
import { run } from "./processes.ts";

readArguments({ usage: usageIn(import.meta.filename), options: {} });

const seconds = Number(process.env["BENCH_SECONDS"] ?? 15);
const only = process.env["BENCH_ONLY"]?.split(",");
const everyMs = 20;
/** Milliseconds for the bystander's 99th percentile: from there on a response is slow. */
const slowMs = 250;
const introspect = loadMethod(
  join(root, "proto/auth/v1/introspection.proto"),
  "auth.v1.IntrospectionService",
  "Introspect",
);

interface Flooded {
  readonly writes: number;
  readonly cuts: Readonly<Record<string, number>>;
}

const server = await spawnAuthServer("PGlite", {
  env: { TLS_CERT: localhostCertificate.cert, TLS_KEY: localhostCertificate.key },
});
const portOf = (address: string) => Number(address.slice(address.lastIndexOf(":") + 1));
const ports = { SERVER_PORT: portOf(server.origin), GRPC_PORT: portOf(server.grpc) };
const authorization = `Basic ${btoa("internal:internal-dev-secret")}`;
const rows = [
  ["Port", "Flood", "Writes/s", "Cut", "GOAWAY", "Bystander: p50", "p99", "worst", "failed", "MiB"],
];
let isMet = true;

/** Introspects until the work is done. @returns the milliseconds of each call that succeeded, and how many failed */
async function bystand(port: number, work: Promise<unknown>): Promise<{ taken: number[]; failed: number }> {
  const client = new GrpcClient(port, credentials.createSsl(Buffer.from(localhostCertificate.cert)));
  const taken: number[] = [];
  let failed = 0;
  let isOver = false;
  const over = work.finally(() => {
    isOver = true;
  });
  const calls: Promise<void>[] = [];
  while (!isOver) {
    const from = performance.now();
    const call = client.unary(
      introspect,
      { token: "none" },
      { authorization },
      { deadline: Date.now() + 10_000 },
    );
    calls.push(
      call.then(
        () => void taken.push(performance.now() - from),
        () => {
          failed += 1;
        },
      ),
    );
    await setTimeout(everyMs);
  }
  await Promise.all([over, ...calls]);
  client.close();
  return { taken, failed };
}

/** Resident memory, in MiB. */
const memory = () =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${server.child.pid}/status`, "utf8"))?.[1]) / 1024;

async function row(
  name: string,
  port: number,
  flooding: Promise<Flooded>,
  allowed = true,
): Promise<string[]> {
  const { taken, failed } = await bystand(port, flooding);
  const { writes, cuts } = await flooding;
  const cut = Object.values(cuts).reduce((sum, count) => sum + count, 0);
  const { p50, p99 } = percentiles(taken);
  isMet &&= failed === 0 && p99 < slowMs && (allowed || cut > 0);
  const ms = (value: number) => `${value.toFixed(1)} ms`;
  return [
    name,
    (writes / seconds).toFixed(0),
    `${cut}`,
    Object.keys(cuts).join(", "),
    ms(p50),
    ms(p99),
    ms(Math.max(...taken)),
    `${failed}`,
    memory().toFixed(0),
  ];
}

try {
  for (const [port, number] of Object.entries(ports)) {
    await bystand(number, setTimeout(1_000));
    const quiet = setTimeout(seconds * 1_000, { writes: 0, cuts: {} });
    rows.push([port, ...(await row("none", number, quiet))]);
    for (const name of floodNames.filter((one) => only?.includes(one) ?? true)) {
      const flooding = run(1, "load-flood.ts", [`${number}`, name, `${seconds}`]).then(
        (line): Flooded => JSON.parse(line),
      );
      rows.push([port, ...(await row(name, number, flooding, isAllowed(name)))]);
    }
  }
  process.stdout.write(`${columns(rows).join("\n")}\n${isMet ? "met" : "NOT met"}\n`);
  process.exitCode = isMet ? 0 : 1;
} finally {
  await server.stop();
}
