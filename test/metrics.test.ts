/** What a server says of itself at its first scrape: everything that is known, with 0, and as it is documented. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { file_auth_v1_introspection } from "../gen/proto/auth/v1/introspection_pb.ts";
import { file_push_v1_delivery } from "../gen/proto/push/v1/delivery_pb.ts";
import manifest from "../package.json" with { type: "json" };
import { allGrantTypes } from "../src/auth/client-settings.ts";
import { contractTexts, loadContract } from "../src/platform/openapi/document.ts";
import { authApi } from "./support/auth-api.ts";
import { openDatabaseGate } from "./support/database-gate.ts";
import { findNats, startNats } from "./support/nats.ts";
import { root } from "./support/program.ts";
import { type Family, scrape, valuesOf } from "./support/scrape.ts";
import { backends, closedPort, type Server, startOwnServer } from "./support/servers.ts";
import { stopwatch } from "./support/stopwatch.ts";
import { suiteCleanup } from "./support/suite-cleanup.ts";
import { waitFor } from "./support/wait-for.ts";

const documents = [
  { service: "auth", texts: contractTexts("auth", "auth") },
  { service: "push", texts: contractTexts("push-orchestration", "push") },
];
const protoServices = [file_auth_v1_introspection, file_push_v1_delivery].flatMap(({ services }) => services);

describe.each(backends)("the first scrape on %s", (backend) => {
  let server: Server;
  let families: readonly Family[];
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    server = await startOwnServer(backend, { env: { PUSH_PROVIDERS: "outbox" } });
    cleanup.defer(() => server.stop());
    families = await scrape(server.management);
  });

  test.each(documents)(
    "has every operation of $service, once for each status of a success",
    async (document) => {
      const { service } = document;
      const { operations } = await loadContract(document.texts);
      expect(operations.length).toBeGreaterThan(10);
      for (const { id: operation, responses } of operations) {
        const successes = Object.keys(responses).filter((status) => status.startsWith("2"));
        expect(successes, operation).not.toEqual([]);
        for (const status of successes) {
          const labels = { service, operation, status };
          expect(
            valuesOf(families, "gatepost_http_request_duration_seconds_count", labels),
            operation,
          ).toEqual([0]);
        }
      }
    },
  );

  test("has every method of the protos, over each protocol", () => {
    const methods = protoServices.flatMap(({ typeName, methods: all }) =>
      all.map(({ name }) => ({ service: typeName, method: name })),
    );
    expect(methods.length).toBeGreaterThan(1);
    for (const method of methods) {
      for (const protocol of ["grpc", "connect", "grpc-web"]) {
        const labels = { ...method, protocol, code: "ok" };
        // Push makes a call to auth before it is ready.
        const isMade = method.method === "Introspect" && protocol === "grpc";
        expect(valuesOf(families, "gatepost_rpc_duration_seconds_count", labels)).toEqual([isMade ? 1 : 0]);
      }
    }
  });

  const both = ["auth", "push"];
  test.each([
    ["gatepost_token_requests_total", { grant_type: allGrantTypes, outcome: ["issued", "refused"] }],
    ["gatepost_guesses_failed_total", { kind: ["password", "code"], locked: ["true", "false"] }],
    ["gatepost_guesses_refused_total", { rule: ["password", "code", "client"] }],
    ["gatepost_push_notifications_total", { audience: ["offsets", "users", "filters", "everybody", "test"] }],
    [
      "gatepost_push_messages_total",
      {
        provider: ["outbox"],
        outcome: ["sent", "dead", "failed", "dropped", "blocked", "retry", "unavailable", "refused"],
      },
    ],
    ["gatepost_push_dead_chunks_total", { provider: ["outbox"] }],
    ["gatepost_push_removal_stops_total", { provider: ["outbox"] }],
    ["gatepost_push_chunk_duration_seconds_count", { provider: ["outbox"] }],
    ["gatepost_database_connect_failures_total", { service: both }],
    ["gatepost_outbox_delivered_events_total", { service: both }],
  ])("has %s with every combination of its labels", (name, labels) => {
    let combinations: Record<string, string>[] = [{}];
    for (const [label, values] of Object.entries(labels)) {
      combinations = combinations.flatMap((one) => values.map((value) => ({ ...one, [label]: value })));
    }
    for (const one of combinations) expect(valuesOf(families, name, one), JSON.stringify(one)).toEqual([0]);
    expect(valuesOf(families, name)).toHaveLength(combinations.length);
  });

  test("has no counter or histogram without a sample", () => {
    const counting = families.filter(({ type }) => type === "counter" || type === "histogram");
    const ours = counting.filter(({ name }) => name.startsWith("gatepost_"));
    expect(ours.length).toBeGreaterThan(10);
    // The embedded database has no lanes, and nothing waits for a connection of it.
    const exceptions = backend === "PGlite" ? ["gatepost_database_wait_seconds"] : [];
    const silent = ours.filter(({ samples }) => samples.length === 0).map(({ name }) => name);
    expect(silent).toEqual(exceptions);
  });

  test("says which version runs, on which Node.js", () => {
    const labels = { version: manifest.version, node: process.versions.node };
    expect(valuesOf(families, "gatepost_build_info", labels)).toEqual([1]);
  });

  test("has the janitor's kinds of both services, as of their start", () => {
    for (const service of both) {
      const moments = valuesOf(families, "gatepost_janitor_caught_up_timestamp_seconds", { service });
      const [lastRound] = valuesOf(families, "gatepost_janitor_last_round_timestamp_seconds", { service });
      expect(moments.length).toBeGreaterThan(3);
      for (const moment of [...moments, lastRound])
        expect(Math.abs(Date.now() / 1000 - (moment ?? 0))).toBeLessThan(120);
      expect(valuesOf(families, "gatepost_janitor_rows_total", { service })).toEqual(moments.map(() => 0));
    }
  });

  test("events wait and are delivered, and requests are counted where there was a 0", async () => {
    const labels = { service: "auth" };
    const before = await scrape(server.management);
    expect(valuesOf(before, "gatepost_outbox_events", labels)).toEqual([0]);
    expect(valuesOf(before, "gatepost_outbox_oldest_event_age_seconds", labels)).toEqual([0]);
    await authApi(server.origin.concat("/api/auth")).newIdentity();
    await waitFor(async () => {
      const after = await scrape(server.management);
      expect(valuesOf(after, "gatepost_outbox_delivered_events_total", labels)).toEqual([1]);
      const created = { operation: "createIdentity" };
      expect(valuesOf(after, "gatepost_http_request_duration_seconds_count", created)).toEqual([1]);
    });
  });
});

describe.skipIf(findNats() === undefined)("what push has not read of a broker", () => {
  const cleanup = suiteCleanup();

  test("is the broker's count, and absent while the broker is away", async () => {
    const nats = await startNats();
    cleanup.defer(() => nats.stop());
    const server = await startOwnServer("PGlite", { env: { BROKER_URL: nats.url } });
    cleanup.defer(() => server.stop());
    async function unread(): Promise<number[]> {
      const families = await scrape(server.management);
      const names = ["gatepost_broker_unread_events", "gatepost_broker_oldest_unread_event_age_seconds"];
      return names.flatMap((name) => valuesOf(families, name));
    }
    await waitFor(async () => expect(await unread()).toEqual([0, 0]));
    await nats.kill();
    await waitFor(async () => expect(await unread()).toEqual([]));
    await nats.restart("kept");
    await waitFor(async () => expect(await unread()).toEqual([0, 0]));
  });
});

// An embedded database has no connections to describe.
describe.runIf(backends.includes("PostgreSQL") && findNats() !== undefined)("docs/metrics.md", () => {
  const cleanup = suiteCleanup();

  test("has a row for each metric of the program, with its type, its labels and its meaning", async () => {
    // A cache that is away is described too.
    const nats = await startNats();
    cleanup.defer(() => nats.stop());
    const env = { CACHE_HOST: "127.0.0.1", CACHE_PORT: String(closedPort), BROKER_URL: nats.url };
    const server = await startOwnServer("PostgreSQL", { env });
    cleanup.defer(() => server.stop());
    const families = await scrape(server.management);
    const ours = families.filter(({ name }) => name.startsWith("gatepost_"));
    expect(ours.length).toBeGreaterThan(15);
    const page = readFileSync(join(root, "docs/metrics.md"), "utf8");
    const documented = page.split("\n").filter((line) => line.startsWith("| `gatepost_"));
    const rows = ours.map(({ name, type, help, samples }) => {
      const labels = Object.keys(samples.at(-1)?.labels ?? {}).filter((label) => label !== "le");
      return `| \`${name}\` | ${type} | ${labels.map((label) => `\`${label}\``).join(", ")} | ${help} |`;
    });
    expect(documented.toSorted()).toEqual(rows.toSorted());
  });
});

describe.runIf(backends.includes("PostgreSQL"))("a scrape while the database hangs: PostgreSQL", () => {
  const cleanup = suiteCleanup();

  test("comes within two seconds, with everything but the outbox, and the outbox is back with the database", async () => {
    const own = await startOwnServer("PostgreSQL", { env: { SERVICES: "auth" } });
    cleanup.defer(() => own.stop());
    const gate = await openDatabaseGate(own.env["DB_HOST"] ?? "", Number(own.env["DB_PORT"]));
    cleanup.defer(() => gate.close());
    const behind = await startOwnServer("PostgreSQL", { env: { ...own.env, DB_PORT: String(gate.port) } });
    cleanup.defer(() => behind.stop());
    expect(valuesOf(await scrape(behind.management), "gatepost_outbox_events")).toEqual([0]);
    const thaw = gate.freeze();
    const since = stopwatch();
    const scrapes = await Promise.all([scrape(behind.management), scrape(behind.management)]);
    expect(since()).toBeLessThan(2_000);
    for (const families of scrapes) {
      expect(valuesOf(families, "gatepost_outbox_events")).toEqual([]);
      expect(valuesOf(families, "gatepost_outbox_oldest_event_age_seconds")).toEqual([]);
      expect(valuesOf(families, "gatepost_build_info")).toEqual([1]);
    }
    thaw();
    await waitFor(async () => {
      expect(valuesOf(await scrape(behind.management), "gatepost_outbox_events")).toEqual([0]);
    });
  });
});
