/** WORKERS: one command, several processes on the same ports, as an operator and a client see it. */
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { describe, expect, it, onTestFinished, test } from "vitest";
import { IntrospectionService } from "../gen/proto/auth/v1/introspection_pb.ts";
import { resolveServerSettings } from "../src/platform/settings/server.ts";
import { readSettings } from "../src/services.ts";
import { killAll, startNode } from "./support/program.ts";
import { scrape, scrapeText, valuesOf } from "./support/scrape.ts";
import { backends, type ServerProcess, spawnServer } from "./support/servers.ts";
import { suiteCleanup } from "./support/suite-cleanup.ts";
import { waitFor } from "./support/wait-for.ts";

suiteCleanup().defer(killAll);

describe("WORKERS", () => {
  const resolved = (text: string) => resolveServerSettings({ WORKERS: text });

  it("is 1 unless set, a number, or auto for the processors that the process may use", () => {
    const workersOf = (text: string) => resolved(text).value.workers;
    expect([workersOf(""), workersOf("3"), workersOf("auto")]).toEqual([1, 3, availableParallelism()]);
  });

  it.each(["0", "129", "-1", "2.5", "all"])("refuses %s", (text) => {
    expect(resolved(text).problems).toMatchObject([
      { name: "WORKERS", what: expect.stringContaining("must be an integer from 1 to 128, or auto") },
    ]);
  });

  it("is refused with the embedded database, which one process uses", async () => {
    const dataDir = mkdtempSync(join(tmpdir(), "gatepost-test-"));
    onTestFinished(() => rmSync(dataDir, { recursive: true }));
    await expect(readSettings({ WORKERS: "2", DATA_DIR: dataDir, SERVICES: "push" })).rejects.toThrow(
      "WORKERS makes 2 processes, and one alone can use the embedded database: name a PostgreSQL in DB_HOST, or unset it.\n      Example: DB_HOST=postgres.internal",
    );
  });
});

describe.runIf(backends.includes("PostgreSQL"))("a server with two workers", () => {
  const cleanup = suiteCleanup();

  async function start(env: Record<string, string> = {}): Promise<ServerProcess> {
    const server = await spawnServer("PostgreSQL", { env: { WORKERS: "2", SERVICES: "auth", ...env } });
    cleanup.defer(() => server.stop());
    await waitFor(() => expect(pidsOf(server)).toHaveLength(2));
    return server;
  }

  /** The processes of all workers that have listened, in that order. */
  const pidsOf = (server: ServerProcess) =>
    [...server.logs().matchAll(/A worker listens.*"workerPid":(\d+)/g)].map(([, pid]) => Number(pid));

  /** One request, on a connection of its own. */
  const ask = (server: ServerProcess) =>
    fetch(`${server.origin}/api/auth/oauth2/v1/introspect`, {
      method: "POST",
      body: "token=x",
      headers: {
        authorization: `Basic ${btoa("internal:internal-dev-secret")}`,
        "content-type": "application/x-www-form-urlencoded",
        connection: "close",
      },
    }).then(({ status }) => status);

  const call = async ({ grpc }: ServerProcess) => {
    const client = createClient(IntrospectionService, createGrpcTransport({ baseUrl: `http://${grpc}` }));
    await client.introspect({ token: "x" }).catch(() => undefined);
  };

  const countsOf = async ({ management }: ServerProcess, name: string) => {
    const families = await scrape(management);
    return ["1", "2"].map((worker) =>
      valuesOf(families, name, { worker }).reduce((sum, one) => sum + one, 0),
    );
  };

  test("serves both ports with both, and shows the metrics of each", async () => {
    const server = await start();
    // One after the other: a busy machine may refuse some of many.
    for (let time = 0; time < 20; time += 1) {
      expect(await ask(server)).toBe(200);
      await call(server);
    }
    for (const name of ["http_request", "rpc"])
      await waitFor(async () => {
        const counts = await countsOf(server, `gatepost_${name}_duration_seconds_count`);
        expect(counts.reduce((sum, one) => sum + one)).toBe(20);
        for (const count of counts) expect(count).toBeGreaterThan(0);
      });
    const text = await scrapeText(server.management);
    const samples = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
    expect(samples.filter((line) => !/[{,]worker="[12]"/.test(line))).toEqual([]);
    const names = text.split("\n").filter((line) => line.startsWith("# TYPE"));
    expect(new Set(names).size).toBe(names.length);
    for (const once of ["gatepost is ready", "Listening", '"Ready"|INFO: Ready', "WORKERS is more than 1"])
      expect(server.logs().match(new RegExp(once, "g")), once).toHaveLength(1);
  });

  test("goes on when one is killed under load: its successor serves, and its counters begin anew", async () => {
    const server = await start();
    const [killed = 0] = pidsOf(server);
    await Promise.all(Array.from({ length: 20 }, () => ask(server)));
    process.kill(killed, "SIGKILL");
    const statuses: (number | string)[] = [];
    let isBack = false;
    const load = Array.from({ length: 8 }, async () => {
      while (!isBack) statuses.push(await ask(server).catch((error) => String(error)));
    });
    await waitFor(() => expect(pidsOf(server)).toHaveLength(3));
    isBack = true;
    await Promise.all(load);
    // Those that were dealt to it before its end was noticed: one of each caller, at most. A busy machine refuses some.
    const lost = statuses.filter((status) => typeof status === "string");
    expect(lost.length).toBeLessThanOrEqual(8);
    expect(statuses.length).toBeGreaterThan(lost.length);
    expect(statuses.filter((status) => ![200, 503].includes(Number(status))).length).toBe(lost.length);
    await waitFor(async () => {
      await Promise.all(Array.from({ length: 8 }, () => ask(server)));
      const counts = await countsOf(server, "gatepost_http_request_duration_seconds_count");
      for (const count of counts) expect(count).toBeGreaterThan(0);
    });
    expect((await fetch(`${server.management}/health/ready`)).status).toBe(200);
  });

  test("is told by the start that PostgreSQL has too few connections for all pools", async () => {
    const server = await start({ DB_POOL_SIZE: "900" });
    expect(server.logs()).toMatch(
      /WORKERS is 2, and with DB_POOL_SIZE they may hold 1800 connections to PostgreSQL at .*, whose max_connections is \d+\. Lower DB_POOL_SIZE/,
    );
  });

  test("exits 0 after SIGTERM, when the workers have drained", async () => {
    const server = await start();
    server.child.kill("SIGTERM");
    expect(await once(server.child, "exit")).toEqual([0, null]);
    expect(server.logs().match(/INFO: Stopped/g)).toHaveLength(3);
  });

  test("ends at once by a second Ctrl+C, with its workers", async () => {
    const server = await start({ SHUTDOWN_DELAY_SECONDS: "600" });
    server.child.kill("SIGINT");
    await waitFor(() => expect(server.logs()).toContain("Stopping"));
    expect((await fetch(`${server.management}/health/ready`)).status).toBe(503);
    await waitFor(() => {
      server.child.kill("SIGINT");
      expect(server.child.exitCode).toBe(130);
    }, 200);
    await waitFor(() => {
      for (const pid of pidsOf(server)) expect(() => process.kill(pid, 0)).toThrow("ESRCH");
    });
  });

  test("says at once that a port is taken", async () => {
    const taken = createServer().listen(0, "127.0.0.1");
    await once(taken, "listening");
    const address = taken.address();
    const port = String(typeof address === "object" ? address?.port : address);
    const { env } = await start();
    const program = startNode("src/start.js", { ...env, SERVER_PORT: port });
    expect(await program.ended()).toBe(1);
    expect(program.stdout()).toContain(`Port ${port} is in use.`);
    taken.close();
  });
});
