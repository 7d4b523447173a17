/**
 * `npm run bench:tls`: what a send costs where the providers speak TLS. 100,000 messages to FCM and to APNs, which respond
 * at once, after 50 and after 150 ms, by one push process on PostgreSQL. The provider is one light process, which at 0 ms
 * may be the limit. Another checkout of the project, with its modules installed, is measured beside this one, in turns.
 *
 *   BENCH_DEVICES=100000
 *   BENCH_AGAINST=/path/to/another/checkout
 *   BENCH_ONLY=fcm,apns          BENCH_DELAYS=0,50,150
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import postgres from "postgres";
import { usageIn } from "../../scripts/command.ts";
import { readArguments } from "../../src/command.ts";
import { newApnsCredentials, newServiceAccount } from "../../src/development/provider-fakes/credentials.ts";
import { createTestDatabase, type TestDatabase } from "../support/backends.ts";
import { localhostCertificate } from "../support/localhost-certificate.ts";
import { installPostgresql } from "../support/postgresql/binaries.ts";
import { postgresUrl, providePostgresql, requiredPostgresUrl } from "../support/postgresql/server.ts";
import { databaseEnvironment } from "../support/servers.ts";
import { type BenchServer, startBenchServer } from "./processes.ts";
import { postgresSeconds } from "./processor-seconds.ts";
import { backofficeToken, servicePorts, startServices } from "./send-world.ts";

readArguments({ usage: usageIn(import.meta.filename), options: {} });

const devices = Number(process.env["BENCH_DEVICES"] ?? 100_000);
const against = process.env["BENCH_AGAINST"];
const delays = (process.env["BENCH_DELAYS"] ?? "0,50,150").split(",").map(Number);
const only = process.env["BENCH_ONLY"]?.split(",");
/** Each provider's devices are at a place of their own, so that one send reaches one provider. */
const providers = [
  { name: "fcm", utcOffset: 0, token: "device-" },
  { name: "apns", utcOffset: 60, token: "" },
].filter(({ name }) => only?.includes(name) ?? true);
const providerPort = 19_310;
const base = `http://127.0.0.1:${servicePorts.push}/api/push-orchestration/v1/pushprovider`;

const print = (line: string) => process.stdout.write(`${line}\n`);
const number = (value: number) => Math.round(value).toLocaleString("en-US");

/** A checkout of the project, with a database of its own. */
interface Contestant {
  readonly name: string;
  readonly program: string;
  readonly database: TestDatabase;
  readonly directory: string;
}

interface Figures {
  readonly count: number;
  readonly firstAt: number;
  readonly lastAt: number;
}

const figuresOf = async (): Promise<Figures> => {
  const response = await fetch(`http://127.0.0.1:${providerPort + 1}`);
  return JSON.parse(await response.text());
};

/** What points a push process at the provider. */
async function providerEnvironment(directory: string): Promise<Record<string, string>> {
  const certificate = join(directory, "ca.pem");
  writeFileSync(certificate, localhostCertificate.cert);
  const account = await newServiceAccount("bench");
  const apns = newApnsCredentials();
  const origin = `https://localhost:${providerPort}`;
  return {
    NODE_EXTRA_CA_CERTS: certificate,
    PUSH_PROVIDERS: "fcm,apns",
    FCM_ENDPOINT: origin,
    FCM_CREDENTIALS: JSON.stringify({
      ...account,
      token_uri: `${origin}/token`,
    }),
    APNS_ENDPOINT: origin,
    APNS_KEY: apns.privateKey,
    APNS_KEY_ID: apns.keyId,
    APNS_TEAM_ID: apns.teamId,
    APNS_TOPIC: apns.topic,
  };
}

/** Devices in columns that all versions have. */
async function fill(sql: postgres.Sql): Promise<void> {
  for (const { name, utcOffset, token } of providers) {
    await sql`
      insert into push.devices (user_id, token, utc_offset, expires_at, provider, token_hash, registered_at, renewed_at)
      select 'user-' || n, token, ${utcOffset}, now() + interval '30 days', ${name}, sha256(token::bytea),
        now() - interval '1 day', now() - interval '1 day'
      from generate_series(1, ${devices}) n,
        lateral (select ${token} || lpad(n::text, ${name === "apns" ? 64 : 7}, '0') as token) as made`;
  }
  await sql`analyze push.devices`;
}

async function sendTo(token: string, utcOffset: number): Promise<string> {
  const response = await fetch(`${base}/push`, {
    method: "POST",
    headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
    body: JSON.stringify({
      title: "Good morning",
      message: "The shop opens at nine.",
      utcOffsets: [utcOffset],
    }),
  });
  if (response.status !== 204) throw new Error(`send: ${response.status} ${await response.text()}`);
  return response.headers.get("notification-id") ?? "";
}

async function completed(token: string, id: string): Promise<{ sent: number }> {
  for (;;) {
    const response = await fetch(`${base}/notifications/${id}`, {
      headers: { Authorization: `Bearer ${token}` },
    });
    const progress: { state: string; sent: number } = JSON.parse(await response.text());
    if (progress.state === "COMPLETED") return progress;
    await setTimeout(200);
  }
}

/** Sends once to warm up, and once more. */
async function measure(
  sql: postgres.Sql,
  push: BenchServer,
  token: string,
  utcOffset: number,
): Promise<{ perSecond: number; push: number; postgres: number }> {
  await completed(token, await sendTo(token, utcOffset));
  const before = {
    figures: await figuresOf(),
    push: push.processorSeconds(),
    postgres: await postgresSeconds(sql),
  };
  const startedAt = Date.now();
  const { sent } = await completed(token, await sendTo(token, utcOffset));
  const after = {
    figures: await figuresOf(),
    push: push.processorSeconds(),
    postgres: await postgresSeconds(sql),
  };
  if (sent !== devices || after.figures.count - before.figures.count !== devices)
    throw new Error(`${sent} sent, ${after.figures.count - before.figures.count} received`);
  return {
    perSecond: (devices / (after.figures.lastAt - startedAt)) * 1000,
    push: ((after.push ?? 0) - (before.push ?? 0)) * (100_000 / devices),
    postgres: (after.postgres - before.postgres) * (100_000 / devices),
  };
}

/** One row of the table. */
async function row(contestant: Contestant, { name, utcOffset }: (typeof providers)[number], delay: number) {
  const provider = await startBenchServer(
    "tls-provider.ts",
    [`${providerPort}`, `${delay}`],
    {},
    async () => (await figuresOf()).count === 0,
    "any",
  );
  const { auth, push } = await startServices(
    contestant.program,
    { ...databaseEnvironment(contestant.database), DATA_DIR: contestant.directory },
    await providerEnvironment(contestant.directory),
  );
  const admin = requiredPostgresUrl();
  admin.pathname = `/${contestant.database.name}`;
  const sql = postgres(admin.href, { max: 1, onnotice: () => undefined });
  try {
    const [{ count } = { count: 0 }] = await sql<{ count: number }[]>`select count(*)::int from push.devices`;
    if (count === 0) await fill(sql);
    const token = await backofficeToken(`http://127.0.0.1:${servicePorts.auth}/api/auth`);
    const figures = await measure(sql, push, token, utcOffset);
    print(
      [
        name.toUpperCase().padEnd(6),
        `${delay} ms`.padEnd(16),
        contestant.name.padEnd(14),
        number(figures.perSecond).padStart(10),
        figures.push.toFixed(2).padStart(10),
        figures.postgres.toFixed(2).padStart(12),
        (figures.push + figures.postgres).toFixed(2).padStart(8),
      ].join(""),
    );
  } finally {
    await sql.end();
    await push.stop();
    await auth.stop();
    await provider.stop();
  }
}

const stopPostgresql = await providePostgresql({ durable: true });
if (!postgresUrl()) {
  print(`This measurement needs PostgreSQL. ${installPostgresql}`);
  process.exit(1);
}
const contestants: Contestant[] = [];
try {
  for (const checkout of [join(import.meta.dirname, "../.."), ...(against === undefined ? [] : [against])]) {
    contestants.push({
      name: contestants.length === 0 ? "this" : basename(checkout),
      program: pathToFileURL(join(checkout, "src/start.js")).href,
      database: await createTestDatabase(),
      directory: mkdtempSync(join(tmpdir(), "gatepost-bench-")),
    });
  }
  print(`${number(devices)} messages over TLS. Processor seconds are for 100,000.`);
  print("To    Responds after  Checkout      Messages/s      Push  PostgreSQL  Together");
  for (const provider of providers)
    for (const delay of delays) for (const contestant of contestants) await row(contestant, provider, delay);
} finally {
  for (const { database, directory } of contestants) {
    await database.drop();
    rmSync(directory, { recursive: true, force: true });
  }
  await stopPostgresql();
}
