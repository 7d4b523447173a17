/**
 * `npm run bench`: what the product does in a second, as a share of what the stack under it could do at most,
 * both measured in this run, on the same core, in turns. Needs PostgreSQL: this machine's, or TEST_POSTGRES_URL.
 *
 *   BENCH_SECONDS=3  BENCH_ROUNDS=9  BENCH_AUTHORIZATIONS=100000  BENCH_ONLY=http,grpc,tokens,refresh
 */

import { once } from "node:events";
import { rmSync } from "node:fs";
import { connect } from "node:net";
import { installPostgresql } from "../support/postgresql/binaries.ts";
import { postgresUrl, providePostgresql } from "../support/postgresql/server.ts";
import { median, quantile } from "./percentiles.ts";
import { application, introspector, type Preparation, prepare, refreshedRows } from "./prepare.ts";
import { databaseCore, type Measured, measure, pinned, startBenchServer } from "./processes.ts";
import { basic, introspectPath, ports, startProduct, tokensPath, warmIntrospection } from "./product.ts";

const seconds = process.env["BENCH_SECONDS"] ?? "3";
const rounds = Number(process.env["BENCH_ROUNDS"] ?? 9);
const count = Number(process.env["BENCH_AUTHORIZATIONS"] ?? 100_000);
const only = process.env["BENCH_ONLY"]?.split(",") ?? ["http", "grpc", "tokens", "refresh"];
const print = (line: string) => process.stdout.write(`${line}\n`);

async function listens(port: number): Promise<boolean> {
  const socket = connect(port, "127.0.0.1");
  await once(socket, "connect");
  socket.destroy();
  return true;
}

/** What is shown while something takes long, to who looks. */
function showProgress(text: string): void {
  if (process.stdout.isTTY) process.stdout.write(`\r  ${text}\x1b[K${text === "" ? "\r" : ""}`);
}

/** Of use, before the first round. */
const warmUpSeconds = "15";

/**
 * Ceiling and product in turns, many short ones, as a machine with neighbours is slow and fast for seconds at a
 * time. Every figure is the median of its rounds', so the share is not the quotient of the rates beside it. V8 goes on
 * compiling until it has seen a thing some ten thousand times, hence the warm-up: a server is measured as it runs,
 * not as it starts.
 */
async function compare(
  name: string,
  target: number,
  ceiling: () => Promise<Measured>,
  product: (duration: string) => Promise<Measured>,
) {
  const pairs: { ceiling: Measured; product: Measured }[] = [];
  showProgress(`${name}: warming up`);
  await product(warmUpSeconds);
  await ceiling();
  for (let round = 1; round <= rounds; round += 1) {
    showProgress(`${name}: round ${round} of ${rounds}`);
    pairs.push({ ceiling: await ceiling(), product: await product(seconds) });
  }
  showProgress("");
  const ratios = pairs.map((pair) => pair.product.perSecond / pair.ceiling.perSecond);
  const ratio = median(ratios);
  const percent = (value: number) => (value * 100).toFixed(1);
  const quartiles = `${percent(quantile(ratios, 0.25))} to ${percent(quantile(ratios, 0.75))} %`;
  const rate = (which: "ceiling" | "product") =>
    Math.round(median(pairs.map((pair) => pair[which].perSecond)))
      .toLocaleString("en-US")
      .padStart(8);
  const p50 = median(pairs.map((pair) => pair.product.p50 ?? 0)).toFixed(2);
  const p99 = median(pairs.map((pair) => pair.product.p99 ?? 0)).toFixed(2);
  const verdict = ratio >= target ? "met" : "NOT met";
  print(
    `${name.padEnd(34)}${rate("product")}/s of ${rate("ceiling")}/s: ${percent(ratio).padStart(5)} %` +
      `  (aim ${target * 100} %: ${verdict})  quartiles ${quartiles}  p50 ${p50} ms  p99 ${p99} ms`,
  );
}

const sampleAnswer = {
  active: true,
  sub: "user-12345",
  aud: ["mobile-app", "storefront"],
  userInfo: { userId: "user-12345" },
  nbf: 1795200000,
  iss: "http://127.0.0.1:8080/api/auth",
  exp: 1795200900,
  iat: 1795200000,
  jti: "019a9f6e-5c1d-7b3a-9f00-3f2a51d0c111.Zk3vJm1y0sQ0123456789A",
  clientId: "mobile-app",
  tokenType: "Bearer",
  client_id: "mobile-app",
  token_type: "Bearer",
  scope: "profile orders",
  username: "user-12345",
};

async function bench(preparation: Preparation): Promise<void> {
  const { introspections, tokens, grants } = preparation;
  const { client_id: _a, token_type: _b, ...message } = sampleAnswer;
  const grpcAnswer = {
    ...message,
    nbf: String(message.nbf),
    exp: String(message.exp),
    iat: String(message.iat),
  };
  const load = (
    duration: string,
    [port, path, who, bodies, expected]: readonly [number, string, string, string, string],
    callers = 64,
  ) => measure(1, "load-http.ts", [String(port), path, who, bodies, expected, String(callers), duration]);
  const issue = (duration: string, callers?: number) =>
    load(duration, [ports.http, tokensPath, basic(application), grants, '"access_token"'], callers);

  const product = await startProduct(preparation);
  print("Letting the server see every token once, as it would in its first minutes ...");
  await warmIntrospection(preparation);
  if (only.includes("http")) {
    const bare = await startBenchServer(
      "bare-hono.ts",
      [String(ports.bareHttp), JSON.stringify(sampleAnswer)],
      {},
      () => listens(ports.bareHttp),
    );
    await compare(
      "Introspection, HTTP (strict)",
      0.4,
      () =>
        load(seconds, [ports.bareHttp, "/introspect", basic(introspector), introspections, '"active":true']),
      (duration) =>
        load(duration, [ports.http, introspectPath, basic(introspector), introspections, '"active":true']),
    );
    await bare.stop();
  }
  if (only.includes("grpc")) {
    const bare = await startBenchServer(
      "bare-grpc.ts",
      [String(ports.bareGrpc), JSON.stringify(grpcAnswer)],
      {},
      () => listens(ports.bareGrpc),
    );
    const grpc = (port: number, duration: string) =>
      measure(1, "load-grpc.ts", [String(port), basic(introspector), tokens, "64", duration]);
    await compare(
      "Introspection, native gRPC (strict)",
      0.5,
      () => grpc(ports.bareGrpc, seconds),
      (duration) => grpc(ports.grpc, duration),
    );
    await bare.stop();
  }
  if (only.includes("tokens")) {
    await compare(
      "Token issuing (grant_type=auth)",
      0.6,
      () => measure(0, "rsa-ceiling.ts", [seconds]),
      (duration) => issue(duration),
    );
  }
  if (only.includes("refresh")) {
    const callers = 16;
    await compare(
      `Refresh, of issuing (${callers} in flight)`,
      0.85,
      () => issue(seconds, callers),
      (duration) =>
        measure(1, "load-refresh.ts", [
          String(ports.http),
          basic(application),
          grants,
          String(callers),
          "20",
          duration,
        ]),
    );
    const { bytes, heapOnlyShare } = await refreshedRows(preparation.database);
    print(
      `Rows that were refreshed${" ".repeat(14)}${bytes} bytes at most (aim: 400: ${bytes <= 400 ? "met" : "NOT met"}), ` +
        `${(heapOnlyShare * 100).toFixed(1)} % of the updates heap-only (aim: 90 %: ${heapOnlyShare >= 0.9 ? "met" : "NOT met"})`,
    );
  }
  const memory = product.peakMemory();
  if (memory !== undefined)
    print(
      `Peak memory${" ".repeat(27)}${memory.toFixed(0)} MiB  (aim: at most 384 MiB: ${memory <= 384 ? "met" : "NOT met"})`,
    );
  await product.stop();
}

const stopPostgresql = await providePostgresql({ durable: true, core: databaseCore });
if (!postgresUrl()) {
  print(`The benchmark needs PostgreSQL. ${installPostgresql}`);
  process.exit(1);
}
print(`Preparing ${count.toLocaleString("en-US")} authorizations and their tokens in PostgreSQL ...`);
const preparation = await prepare(count, (done) => {
  showProgress(`${done.toLocaleString("en-US")} tokens signed`);
});
showProgress("");
print(
  `Each figure: median of ${rounds} rounds of ${seconds} s, each a ceiling and the product, after a warm-up; 64 in flight${pinned ? ", servers on core 0, load and PostgreSQL on core 1" : ""}.\n`,
);
try {
  await bench(preparation);
} finally {
  await preparation.database.drop();
  await stopPostgresql();
  rmSync(preparation.directory, { recursive: true, force: true });
}
