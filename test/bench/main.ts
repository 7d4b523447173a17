/**
 * `npm run bench`: what the product does in a second, as a share of what the stack under it could do at most,
 * both measured in this run, on the same core, in turns. Needs PostgreSQL: this machine's, or TEST_POSTGRES_URL.
 * Another checkout of the project, with its modules installed, is measured beside this one, in the same turns.
 *
 *   BENCH_SECONDS=3  BENCH_ROUNDS=9  BENCH_AUTHORIZATIONS=100000  BENCH_ONLY=http,grpc,tokens,refresh
 *   BENCH_AGAINST=/path/to/another/checkout
 */

import { once } from "node:events";
import { rmSync } from "node:fs";
import { connect } from "node:net";
import { basename, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { installPostgresql } from "../support/postgresql/binaries.ts";
import { postgresUrl, providePostgresql } from "../support/postgresql/server.ts";
import { median, quantile } from "./percentiles.ts";
import { type Preparation, refreshedRows } from "./prepare.ts";
import {
  type BenchServer,
  databaseCore,
  type Measured,
  measure,
  pinned,
  startBenchServer,
} from "./processes.ts";
import {
  basic,
  introspectPath,
  portAt,
  ports,
  startProduct,
  tokensPath,
  warmIntrospection,
} from "./product.ts";

const seconds = process.env["BENCH_SECONDS"] ?? "3";
const rounds = Number(process.env["BENCH_ROUNDS"] ?? 9);
const count = Number(process.env["BENCH_AUTHORIZATIONS"] ?? 100_000);
const only = process.env["BENCH_ONLY"]?.split(",") ?? ["http", "grpc", "tokens", "refresh"];
const against = process.env["BENCH_AGAINST"];
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

/** A checkout of the project under load. */
interface Contestant {
  readonly name: string;
  readonly place: number;
  readonly preparation: Preparation;
  /** The Authorization headers of the two clients. */
  readonly application: string;
  readonly introspector: string;
  readonly server: BenchServer;
}

/** @param root another checkout, which prepares its own database; this one unless given */
async function startContestant(place: number, root?: string): Promise<Contestant> {
  const { prepare, application, introspector }: typeof import("./prepare.ts") =
    root === undefined
      ? await import("./prepare.ts")
      : await import(pathToFileURL(join(root, "test/bench/prepare.ts")).href);
  const name = basename(root ?? join(import.meta.dirname, "../.."));
  print(`Preparing ${count.toLocaleString("en-US")} authorizations and their tokens in PostgreSQL ...`);
  const preparation = await prepare(count, (done) => {
    showProgress(`${done.toLocaleString("en-US")} tokens signed`);
  });
  showProgress("");
  const program = root === undefined ? undefined : join(root, "src/start.js");
  const server = await startProduct(preparation, place, {}, program);
  print("Letting the server see every token once, as it would in its first minutes ...");
  await warmIntrospection(preparation, place, introspector);
  const callers = { application: basic(application), introspector: basic(introspector) };
  return { name, place, preparation, ...callers, server };
}

async function stopContestant({ server, preparation }: Contestant): Promise<void> {
  await server.stop();
  await preparation.database.drop();
  rmSync(preparation.directory, { recursive: true, force: true });
}

const verdict = (isMet: boolean) => (isMet ? "met" : "NOT met");
const percent = (value: number) => (value * 100).toFixed(1);
const quartilesOf = (ratios: readonly number[]) =>
  `quartiles ${percent(quantile(ratios, 0.25))} to ${percent(quantile(ratios, 0.75))} %`;
const rateOf = (figures: readonly Measured[]) =>
  `${Math.round(median(figures.map(({ perSecond }) => perSecond)))
    .toLocaleString("en-US")
    .padStart(8)}/s`;
const p99Of = (figures: readonly Measured[]) => median(figures.map(({ p99 }) => p99 ?? 0));
const timesOf = (figures: readonly Measured[]) =>
  `p50 ${median(figures.map(({ p50 }) => p50 ?? 0)).toFixed(2)} ms  ` + `p99 ${p99Of(figures).toFixed(2)} ms`;

/**
 * Ceiling and product in turns, many short ones, as a machine with neighbours is slow and fast for seconds at a
 * time. Every figure is the median of its rounds', so the share is not the quotient of the rates beside it. V8 goes on
 * compiling until it has seen a thing some ten thousand times, hence the warm-up: a server is measured as it runs,
 * not as it starts.
 */
async function compare(
  name: string,
  aims: { readonly share: number; readonly p99Ms?: number },
  ceiling: (first: Contestant) => Promise<Measured>,
  product: (contestant: Contestant, duration: string) => Promise<Measured>,
  [first, other]: Contestants,
) {
  const pairs: { ceiling: Measured; product: Measured; other: Measured | undefined }[] = [];
  showProgress(`${name}: warming up`);
  await product(first, warmUpSeconds);
  if (other !== undefined) await product(other, warmUpSeconds);
  await ceiling(first);
  for (let round = 1; round <= rounds; round += 1) {
    showProgress(`${name}: round ${round} of ${rounds}`);
    pairs.push({
      ceiling: await ceiling(first),
      product: await product(first, seconds),
      other: other && (await product(other, seconds)),
    });
  }
  showProgress("");
  const ratios = pairs.map((pair) => pair.product.perSecond / pair.ceiling.perSecond);
  const ratio = median(ratios);
  const products = pairs.map((pair) => pair.product);
  const p99Verdict =
    aims.p99Ms === undefined
      ? ""
      : ` (aim: below ${aims.p99Ms} ms: ${verdict(p99Of(products) < aims.p99Ms)})`;
  print(
    `${name.padEnd(34)}${rateOf(products)} of ${rateOf(pairs.map((pair) => pair.ceiling))}: ` +
      `${percent(ratio).padStart(5)} %  (aim ${aims.share * 100} %: ${verdict(ratio >= aims.share)})  ` +
      `${quartilesOf(ratios)}  ${timesOf(products)}${p99Verdict}`,
  );
  if (other === undefined) return;
  const others = pairs.flatMap((pair) => pair.other ?? []);
  const shares = others.map((figure, round) => (products[round]?.perSecond ?? 0) / figure.perSecond);
  print(
    `  beside ${other.name}`.padEnd(34) +
      `${rateOf(others)}: ${first.name} does ${percent(median(shares))} % of it  ${quartilesOf(shares)}  ` +
      timesOf(others),
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

/** This checkout, and the one that it is measured beside, if there is one. */
type Contestants = readonly [first: Contestant, other: Contestant | undefined];

async function bench(contestants: Contestants): Promise<void> {
  const [first] = contestants;
  const { client_id: _a, token_type: _b, ...message } = sampleAnswer;
  const grpcAnswer = {
    ...message,
    nbf: String(message.nbf),
    exp: String(message.exp),
    iat: String(message.iat),
  };
  const introspect = (
    { preparation, introspector }: Contestant,
    [port, path]: readonly [number, string],
    duration: string,
  ) =>
    measure(1, "load-http.ts", [
      `${port}`,
      path,
      introspector,
      preparation.introspections,
      '"active":true',
      "64",
      duration,
    ]);
  const issue = ({ place, preparation, application }: Contestant, duration: string, callers = 64) =>
    measure(1, "load-http.ts", [
      `${portAt(ports.http, place)}`,
      tokensPath,
      application,
      preparation.grants,
      '"access_token"',
      `${callers}`,
      duration,
    ]);

  if (only.includes("http")) {
    const bare = await startBenchServer(
      "bare-hono.ts",
      [String(ports.bareHttp), JSON.stringify(sampleAnswer)],
      {},
      () => listens(ports.bareHttp),
    );
    await compare(
      "Introspection, HTTP (strict)",
      { share: 0.4 },
      (caller) => introspect(caller, [ports.bareHttp, "/introspect"], seconds),
      (caller, duration) => introspect(caller, [portAt(ports.http, caller.place), introspectPath], duration),
      contestants,
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
    const grpc = ({ preparation, introspector }: Contestant, port: number, duration: string) =>
      measure(1, "load-grpc.ts", [`${port}`, introspector, preparation.tokens, "64", duration]);
    await compare(
      "Introspection, native gRPC (strict)",
      { share: 0.5 },
      (caller) => grpc(caller, ports.bareGrpc, seconds),
      (caller, duration) => grpc(caller, portAt(ports.grpc, caller.place), duration),
      contestants,
    );
    await bare.stop();
  }
  if (only.includes("tokens")) {
    await compare(
      "Token issuing (grant_type=auth)",
      { share: 0.6 },
      () => measure(0, "rsa-ceiling.ts", [seconds]),
      issue,
      contestants,
    );
  }
  if (only.includes("refresh")) {
    const callers = 16;
    await compare(
      `Refresh, of issuing (${callers} in flight)`,
      { share: 0.85, p99Ms: 40 },
      (contestant) => issue(contestant, seconds, callers),
      ({ place, preparation, application }, duration) =>
        measure(1, "load-refresh.ts", [
          `${portAt(ports.http, place)}`,
          application,
          preparation.grants,
          `${callers}`,
          "20",
          duration,
        ]),
      contestants,
    );
    const { bytes, heapOnlyShare } = await refreshedRows(first.preparation.database);
    print(
      `Rows that were refreshed${" ".repeat(14)}${bytes} bytes at most (aim: 400: ${verdict(bytes <= 400)}), ` +
        `${percent(heapOnlyShare)} % of the updates heap-only (aim: 90 %: ${verdict(heapOnlyShare >= 0.9)})`,
    );
  }
  printMemory(contestants);
}

function printMemory([first, other]: Contestants): void {
  const memory = first.server.peakMemory();
  if (memory === undefined) return;
  const beside =
    other === undefined ? "" : `  beside ${other.name}: ${other.server.peakMemory()?.toFixed(0)} MiB`;
  print(
    `Peak memory${" ".repeat(27)}${memory.toFixed(0)} MiB  ` +
      `(aim: at most 384 MiB: ${verdict(memory <= 384)})${beside}`,
  );
}

const stopPostgresql = await providePostgresql({ durable: true, core: databaseCore });
if (!postgresUrl()) {
  print(`The benchmark needs PostgreSQL. ${installPostgresql}`);
  process.exit(1);
}
const started: Contestant[] = [];
try {
  const first = await startContestant(0);
  started.push(first);
  const other = against === undefined ? undefined : await startContestant(1, resolve(against));
  if (other !== undefined) started.push(other);
  print(
    `Each figure: median of ${rounds} rounds of ${seconds} s, each a ceiling and the product, after a warm-up; ` +
      `64 in flight${pinned ? ", servers on core 0, load and PostgreSQL on core 1" : ""}.\n`,
  );
  await bench([first, other]);
} finally {
  for (const contestant of started) await stopContestant(contestant);
  await stopPostgresql();
}
