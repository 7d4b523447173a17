/** Processes behind HAProxy, with the configuration of deploy/, are restarted one after the other. */
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type IncomingMessage, request } from "node:http";
import type { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as pause } from "node:timers/promises";
import { beforeAll, describe, expect, test } from "vitest";
import { Client } from "./cluster/client.ts";
import { Journeys } from "./cluster/journey.ts";
import { readContract } from "./support/contract-check.ts";
import { findHaproxy, type Haproxy, haproxyConfiguration, startHaproxy } from "./support/haproxy.ts";
import { createMigratedDatabase } from "./support/migrated-database.ts";
import { backends, databaseEnvironment, type Server, startOwnServer } from "./support/servers.ts";
import { suiteCleanup } from "./support/suite-cleanup.ts";

const haproxy = findHaproxy() ?? "";

describe.skipIf(haproxy === "")("HAProxy", () => {
  test("has nothing to say against the configuration", () => {
    const check = ["-c", "-V", "-f", haproxyConfiguration];
    expect(execFileSync(haproxy, check, { encoding: "utf8" })).toContain("Configuration file is valid");
  });

  test.each([
    ["auth", "createIdentity", "/v1/identities", "POST"],
    ["auth", "generateTokens", "/oauth2/v1/tokens", "POST"],
    ["auth", "introspectToken", "/oauth2/v1/introspect", "POST"],
    ["push-orchestration", "sendPushNotification", "/v1/pushprovider/push", "POST"],
  ])(
    "of %s, %s is the 503 of its document while no process is there",
    async (name, operation, path, method) => {
      await using open = new AsyncDisposableStack();
      const balancer = await startHaproxy();
      open.defer(() => balancer.stop());
      for (const [sent, shown] of [
        ['a"b\\c', /^a"b\\c$/],
        ["ä b", /^[0-9a-f-]{36}$/],
      ] as const) {
        const headers = { "x-request-id": sent };
        const response = await fetch(`${balancer.origin}/api/${name}${path}`, { method, headers });
        const body = await response.text();
        expect(response.status).toBe(503);
        readContract(name).check(operation, response, body);
        expect(response.headers.get("x-request-id")).toMatch(shown);
        if (body.includes("requestId"))
          expect(JSON.parse(body).requestId).toBe(response.headers.get("x-request-id"));
      }
    },
  );
});

describe.skipIf(haproxy === "")("HAProxy before a process", () => {
  const cleanup = suiteCleanup();
  let balancer: Haproxy;
  /** Is ready, and leaves every request to a test. */
  const server = createServer((request, response) => {
    if (request.url === "/health/ready") response.end();
    else server.emit("asked", request.socket);
  });
  beforeAll(async () => {
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    cleanup.defer(() => void server.close().closeAllConnections());
    balancer = await startHaproxy(["timeout server 10m", "timeout server 1s"]);
    cleanup.defer(() => balancer.stop());
    const address = server.address();
    const at = `127.0.0.1:${typeof address === "object" && address ? address.port : 0}`;
    for (const service of ["auth", "push"] as const)
      await balancer.add(service, 1, { origin: `http://${at}`, grpc: at, management: `http://${at}` });
  });

  test.each([
    ["createIdentity", "/v1/identities"],
    ["generateTokens", "/oauth2/v1/tokens"],
  ])("responds to %s with a broken body as its document declares", async (operation, path) => {
    const asked = request(`${balancer.origin}/api/auth${path}`, { method: "POST" });
    asked.setHeader("x-request-id", "mine");
    asked.write("x");
    await once(server, "asked");
    asked.socket?.write("nonsense\r\n");
    const [incoming]: IncomingMessage[] = await once(asked, "response");
    const body = incoming ? await text(incoming) : "";
    const headers = new Headers(
      Object.entries(incoming?.headersDistinct ?? {}).map(([name, [value = ""] = []]) => [name, value]),
    );
    expect(incoming?.statusCode).toBe(400);
    readContract("auth").check(operation, new Response(body, { status: 400, headers }), body);
    expect(headers.get("x-request-id")).toBe("mine");
  });

  test.each([
    ["ends in the middle", "auth", "createIdentity", "/v1/identities"],
    ["ends in the middle", "auth", "generateTokens", "/oauth2/v1/tokens"],
    ["stays silent", "auth", "createIdentity", "/v1/identities"],
    ["stays silent", "push-orchestration", "sendPushNotification", "/v1/pushprovider/push"],
  ])("that %s responds for %s to %s with the 503 of its document", async (how, name, operation, path) => {
    const asked = once(server, "asked");
    const headers = { "x-request-id": "mine" };
    const responded = fetch(`${balancer.origin}/api/${name}${path}`, { method: "POST", headers });
    const [socket]: Socket[] = await asked;
    if (how === "ends in the middle") socket?.destroy();
    const response = await responded;
    const body = await response.text();
    expect(response.status).toBe(503);
    readContract(name).check(operation, response, body);
    expect(response.headers.get("x-request-id")).toBe("mine");
  });
});

describe.skipIf(haproxy === "" || !backends.includes("PostgreSQL"))("behind HAProxy", () => {
  const cleanup = suiteCleanup();
  let balancer: Haproxy;
  let env: Record<string, string>;
  beforeAll(async () => {
    balancer = await startHaproxy();
    cleanup.defer(() => balancer.stop());
    const database = await createMigratedDatabase();
    cleanup.defer(() => database.drop());
    const dataDir = mkdtempSync(join(tmpdir(), "gatepost-test-"));
    cleanup.defer(() => rmSync(dataDir, { recursive: true, force: true }));
    env = {
      ...databaseEnvironment(database),
      DATA_DIR: dataDir,
      OAUTH_SERVER_ISSUER: `${balancer.origin}/api/auth`,
      PLATFORM_SECURITY_URL: `http://${balancer.grpc}`,
      // As in production.
      SHUTDOWN_DELAY_SECONDS: "2",
    };
  });

  /** In a place of both services. */
  async function start(place: number): Promise<Server> {
    const server = await startOwnServer("PostgreSQL", { env });
    await balancer.add("auth", place, server);
    await balancer.add("push", place, server);
    return server;
  }

  test("a client that never tries again sees no failed request while each process is restarted", async () => {
    await using open = new AsyncDisposableStack();
    const servers = [await start(1), await start(2)];
    open.defer(async () => void (await Promise.all(servers.map((server) => server.stop()))));
    const client = new Client(balancer.origin, balancer.grpc);
    open.defer(() => client.close());
    const journeys = new Journeys(client);
    const operator = await journeys.newOperator();
    let isOver = false;
    const users = Array.from({ length: 2 }, async () => {
      while (!isOver) {
        await journeys.walk(operator);
        await pause(100);
      }
    });
    try {
      for (const [index, server] of servers.entries()) {
        const before = journeys.requests;
        await server.stop();
        for (const service of ["auth", "push"] as const) await balancer.remove(service, index + 1);
        expect(journeys.requests).toBeGreaterThan(before);
        servers[index] = await start(index + 1);
      }
    } finally {
      isOver = true;
      await Promise.all(users);
    }
    expect([...journeys.failures]).toEqual([]);
    // Journeys came to their ends.
    expect(journeys.made.get("identity: delete")).toBeGreaterThan(users.length);
  });
});
