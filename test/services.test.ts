/** SERVICES names the services that a process runs: the others need neither settings nor memory. */
import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { describe, expect, test } from "vitest";
import { killAll, startProgram } from "./support/program.ts";
import { startOwnServer } from "./support/servers.ts";
import { suiteCleanup } from "./support/suite-cleanup.ts";

suiteCleanup().defer(killAll);

/** Writes every module that is loaded to the error output. */
const tellLoads = `data:text/javascript,${encodeURIComponent(`
  import { registerHooks } from "node:module";
  registerHooks({ load(url, context, next) { process.stderr.write("LOAD " + url + "\\n"); return next(url, context); } });
`)}`;

async function loadedBy(services: string): Promise<string[]> {
  // The database is never connected to: making the services loads all that they are of.
  const script = `
    const { readSettings } = await import("./src/services.ts");
    const { composeServices } = await import("./src/compose-services.ts");
    const { createLogger } = await import("./src/platform/observability/logger.ts");
    const { createMetrics } = await import("./src/platform/observability/metrics.ts");
    const logger = createLogger({ level: "silent", environment: "production" });
    const env = { SERVICES: "${services}", DB_HOST: "127.0.0.1", DB_PORT: "1" };
    await composeServices(await readSettings(env), { logger, metrics: createMetrics("test", "1.2.3"), clock: { now: Date.now } });
    process.exit(0);`;
  const program = startProgram(
    [process.execPath, "--import", tellLoads, "--input-type=module", "-e", script],
    {},
  );
  expect(await program.ended(), program.output()).toBe(0);
  return program
    .stderr()
    .split("\n")
    .filter((line) => line.startsWith("LOAD "));
}

test("the management port of a server answers health checks over HTTP/1.0 that name no host", async () => {
  const server = await startOwnServer("PGlite", { env: { SERVICES: "auth" } });
  try {
    const { hostname, port } = new URL(server.management);
    const socket = connect(Number(port), hostname);
    socket.end("GET /health/ready HTTP/1.0\r\n\r\n");
    expect(await text(socket)).toMatch(/^HTTP\/1\.1 200 /);
  } finally {
    await server.stop();
  }
});

describe("a process", () => {
  test("of the auth service loads nothing of push, and no job queue", async () => {
    const loaded = await loadedBy("auth");
    expect(loaded.filter((url) => url.includes("/src/auth/")).length).toBeGreaterThan(10);
    expect(loaded.filter((url) => /\/src\/push\/|\/node_modules\/pg\//.test(url))).toEqual([]);
  });

  test("of the push service loads nothing of auth, and no argon2", async () => {
    const loaded = await loadedBy("push");
    expect(loaded.filter((url) => url.includes("/src/push/")).length).toBeGreaterThan(10);
    expect(loaded.filter((url) => /\/src\/auth\/|argon2/.test(url))).toEqual([]);
  });

  test.each(["auth", "push"] as const)("of the service %s has its API and no other", async (service) => {
    const server = await startOwnServer("PGlite", { env: { SERVICES: service } });
    try {
      const bases = { auth: "/api/auth", push: "/api/push-orchestration" };
      for (const [name, base] of Object.entries(bases)) {
        const { status } = await fetch(`${server.origin}${base}/openapi.json`);
        expect(status, base).toBe(name === service ? 200 : 404);
      }
    } finally {
      await server.stop();
    }
  });
});
