/**
 * `npm run bench`: what the product does in a second, as a share of what the stack under it could do at most,
 * both measured in this run, on the same core, in turns; and how long responses take while it is asked for 50 and 80 %
 * of that. Needs PostgreSQL: this machine's, or TEST_POSTGRES_URL. Another checkout of the project, with its modules
 * installed, is measured beside this one, in the same turns.
 *
 *   BENCH_SECONDS=2  BENCH_ROUNDS=7  BENCH_AUTHORIZATIONS=100000
 *   BENCH_ONLY=http,grpc,connect,connect-h2c,connect-tls,open,tokens,refresh     open: of http and grpc
 *   BENCH_AGAINST=/path/to/another/checkout
 */

import { once } from "node:events";
import { connect } from "node:net";
import { resolve } from "node:path";
import { usageIn } from "../../scripts/command.ts";
import { readArguments } from "../../src/command.ts";
import { installPostgresql } from "../support/postgresql/binaries.ts";
import { postgresUrl, providePostgresql } from "../support/postgresql/server.ts";
import { proofOf } from "../support/public-app.ts";
import {
  compare,
  type Figures,
  percent,
  quartilesOf,
  rounds,
  type Subject,
  seconds,
  shares,
  verdict,
} from "./comparison.ts";
import {
  type Contestant,
  type Contestants,
  startContestant,
  stopContestant,
  toSecured,
} from "./contestants.ts";
import type { Protocol } from "./loads.ts";
import { printOpen } from "./open-loop.ts";
import { median } from "./percentiles.ts";
import { issuer, refreshedRows } from "./prepare.ts";
import { databaseCore, measure, pinned, startBenchServer } from "./processes.ts";
import { portAt, ports } from "./product.ts";
import { print } from "./progress.ts";

readArguments({ usage: usageIn(import.meta.filename), options: {} });

const count = Number(process.env["BENCH_AUTHORIZATIONS"] ?? 100_000);
const only = process.env["BENCH_ONLY"]?.split(",");
const isAsked = (key: string) => only?.includes(key) ?? true;
const against = process.env["BENCH_AGAINST"];

const sampleAnswer = {
  active: true,
  sub: "user-12345",
  aud: ["backend", "storefront"],
  userInfo: { userId: "user-12345" },
  nbf: 1795200000,
  iss: "http://127.0.0.1:8080/api/auth",
  exp: 1795200900,
  iat: 1795200000,
  jti: "019a9f6e-5c1d-7b3a-9f00-3f2a51d0c111.Zk3vJm1y0sQ0123456789A",
  clientId: "backend",
  tokenType: "Bearer",
  client_id: "backend",
  token_type: "Bearer",
  scope: "profile orders",
  username: "user-12345",
};

async function listens(port: number): Promise<boolean> {
  const socket = connect(port, "127.0.0.1");
  await once(socket, "connect");
  socket.destroy();
  return true;
}

async function bench(contestants: Contestants): Promise<void> {
  const [first] = contestants;
  const { client_id: _a, token_type: _b, ...message } = sampleAnswer;
  const grpcAnswer = {
    ...message,
    nbf: String(message.nbf),
    exp: String(message.exp),
    iat: String(message.iat),
  };
  const closed = (
    protocol: Protocol,
    port: number,
    who: string,
    file: string,
    duration: string,
    callers = 64,
  ) => measure(1, "load-closed.ts", [protocol, `${port}`, who, file, `${callers}`, duration]);
  const introspect =
    (protocol: Protocol, port: number, isBare = false) =>
    ({ place, preparation, introspector }: Contestant, duration = seconds) => {
      const file = protocol === "http" ? preparation.introspections : preparation.tokens;
      return closed(protocol, isBare ? port : portAt(port, place), introspector, file, duration);
    };
  const issue = ({ place, preparation, application }: Contestant, duration: string, callers = 64) =>
    closed("http", portAt(ports.http, place), application, preparation.grants, duration, callers);

  const introspections: Partial<Record<string, Subject>> = {
    http: {
      name: "Introspection, HTTP (strict)",
      aims: { share: 0.4 },
      ceiling: introspect("http", ports.bareHttp, true),
      product: introspect("http", ports.http),
    },
    grpc: {
      name: "Introspection, native gRPC (strict)",
      aims: { share: 0.5 },
      ceiling: introspect("grpc", ports.bareGrpc, true),
      product: introspect("grpc", ports.grpc),
    },
    connect: { name: "Introspection, Connect, HTTP/1.1", product: introspect("connect", ports.http) },
    "connect-h2c": {
      name: "Introspection, Connect, HTTP/2",
      product: introspect("connect-h2c", ports.grpc),
      isNew: true,
    },
    "connect-tls": {
      name: "Introspection, Connect, HTTP/2, TLS",
      product: introspect("connect-tls", portAt(ports.http, toSecured)),
    },
  };
  const asked = Object.entries(introspections).filter(([key]) => isAsked(key));
  const bares = await Promise.all([
    startBenchServer("bare-hono.ts", [String(ports.bareHttp), JSON.stringify(sampleAnswer)], {}, () =>
      listens(ports.bareHttp),
    ),
    startBenchServer("bare-grpc.ts", [String(ports.bareGrpc), JSON.stringify(grpcAnswer)], {}, () =>
      listens(ports.bareGrpc),
    ),
  ]);
  const figures = await compare(
    asked.flatMap(([, subject]) => subject ?? []),
    contestants,
  );
  for (const bare of bares) await bare.stop();
  const of = (key: string) => figures[asked.findIndex(([name]) => name === key)];
  const [http, grpc] = [of("http"), of("grpc")];
  if (http && grpc) {
    const ratios = shares(grpc.products, http.products);
    const share = median(ratios);
    print(
      `${"Native gRPC, of HTTP".padEnd(36)}${percent(share).padStart(8)} %  (aim 85 %: ${verdict(share >= 0.85)})  ` +
        quartilesOf(ratios),
    );
  }
  const capacitiesOf = ({ products, others }: Figures) =>
    [products, others].map((all) => median(all.map(({ perSecond }) => perSecond)));
  const open =
    (protocol: Protocol, port: number) =>
    ({ place, preparation, introspector }: Contestant) => {
      const file = protocol === "http" ? preparation.introspections : preparation.tokens;
      return [protocol, `${portAt(port, place)}`, introspector, file];
    };
  if (http && isAsked("open"))
    await printOpen("Open loop, HTTP", capacitiesOf(http), open("http", ports.http), contestants);
  if (grpc && isAsked("open"))
    await printOpen("Open loop, native gRPC", capacitiesOf(grpc), open("grpc", ports.grpc), contestants);
  if (isAsked("tokens")) {
    const subject = {
      name: "Token issuing (grant_type=auth)",
      aims: { share: 0.6 },
      ceiling: () => measure(0, "rsa-ceiling.ts", [seconds]),
      product: issue,
    };
    await compare([subject], contestants);
  }
  if (isAsked("refresh")) {
    const callers = 16;
    const subject: Subject = {
      name: `Refresh, of issuing (${callers} in flight)`,
      aims: { share: 0.85, p99Ms: 40 },
      ceiling: (contestant) => issue(contestant, seconds, callers),
      product: ({ place, preparation, application }, duration) =>
        measure(1, "load-refresh.ts", [
          ...[`${portAt(ports.http, place)}`, application, preparation.grants],
          ...[`${callers}`, "20", duration],
        ]),
    };
    const bound: Subject = {
      name: "Refresh, bound to a key, of unbound",
      aims: { share: 0.8 },
      ceiling: (contestant) => subject.product(contestant, seconds),
      product: async ({ place, preparation }, duration) =>
        measure(1, "load-refresh.ts", [
          ...[`${portAt(ports.http, place)}`, "", preparation.refreshes, `${callers}`, "20", duration],
          await proofOf(preparation.appKeys, `${issuer}/oauth2/v1/tokens`),
        ]),
      isNew: true,
    };
    await compare([subject, bound], contestants);
    const { bytes, heapOnlyShare } = await refreshedRows(first.preparation.database);
    print(
      `${"Rows that were refreshed".padEnd(36)}${String(bytes).padStart(8)} bytes at most (aim: 400: ${verdict(bytes <= 400)}), ` +
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
    `${"Peak memory".padEnd(36)}${memory.toFixed(0).padStart(8)} MiB  ` +
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
  const options = { count, isSecured: isAsked("connect-tls") };
  const first = await startContestant(0, options);
  started.push(first);
  const other =
    against === undefined ? undefined : await startContestant(1, { ...options, root: resolve(against) });
  if (other !== undefined) started.push(other);
  print(
    `Each figure: median of ${rounds} rounds of ${seconds} s, ceilings and product in turns, after a warm-up; ` +
      `64 in flight${pinned ? ", servers on core 0, load and PostgreSQL on core 1" : ""}.\n`,
  );
  await bench([first, other]);
} finally {
  for (const contestant of started) await stopContestant(contestant);
  await stopPostgresql();
}
