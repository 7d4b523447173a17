/** Liveness, readiness and metrics on the management port. */
import { once } from "node:events";
import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { afterEach, describe, expect, it } from "vitest";
import { createManagementApp } from "../../../src/platform/http/management.ts";
import { createHttpServer } from "../../../src/platform/http/server.ts";
import { createMetrics } from "../../../src/platform/observability/metrics.ts";
import { createLifecycle } from "../../../src/platform/process/lifecycle.ts";
import { captureLog } from "../../support/captured-log.ts";
import { stopwatch } from "../../support/stopwatch.ts";

const servers: ReturnType<typeof createHttpServer>[] = [];
afterEach(() => Promise.all(servers.splice(0).map((server) => server.close(100))));

async function start() {
  const { logger, lines } = captureLog();
  const metrics = createMetrics("gatepost", "1.2.3");
  const lifecycle = createLifecycle({ logger, graceSeconds: 1 });
  const server = createHttpServer({ logger, defaultHost: "localhost" });
  server.serve({ fetch: createManagementApp({ metrics, lifecycle, logger }).fetch });
  servers.push(server);
  const port = await server.listen("127.0.0.1", 0);
  const ask = (path: string, init?: RequestInit) => fetch(`http://127.0.0.1:${port}${path}`, init);
  return { ask, lifecycle, metrics, server, port, lines };
}

describe("GET /health/live", () => {
  it("is 200 from the first moment, also while the process is not ready or drains", async () => {
    const { ask, lifecycle } = await start();
    lifecycle.readiness.register("database");
    await lifecycle.shutdown("test");
    const response = await ask("/health/live");
    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toBe("application/json");
    expect(await response.json()).toEqual({ status: "up" });
  });
});

it("answers health checks over HTTP/1.0 that name no host", async () => {
  const { port } = await start();
  const socket = connect(port, "127.0.0.1");
  socket.end("GET /health/live HTTP/1.0\r\n\r\n");
  expect(await text(socket)).toMatch(/^HTTP\/1\.1 200 /);
});

describe("GET /health/ready", () => {
  it("is 200 while everything is ready, else 503 with what is not and why", async () => {
    const { ask, lifecycle } = await start();
    const database = lifecycle.readiness.register("database");
    const starting = await ask("/health/ready");
    expect(starting.status).toBe(503);
    expect(await starting.json()).toEqual({
      status: "down",
      notReady: [{ name: "database", reason: "starting" }],
    });
    database.ready();
    const ready = await ask("/health/ready?from=probe");
    expect(ready.status).toBe(200);
    expect(await ready.json()).toEqual({ status: "up" });
    await lifecycle.shutdown("test");
    const draining = await ask("/health/ready");
    expect(draining.status).toBe(503);
    expect(draining.headers.get("cache-control")).toBe("no-store");
    expect(await draining.json()).toMatchObject({ notReady: [{ name: "process", reason: "draining" }] });
  });
});

describe("GET /metrics", () => {
  it("is Prometheus text", async () => {
    const { ask, metrics } = await start();
    metrics.http.completed({ service: "auth", operation: "issueToken", status: 200, seconds: 0.1 });
    const response = await ask("/metrics");
    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toBe("text/plain; version=0.0.4; charset=utf-8");
    expect(await response.text()).toMatch(/^gatepost_http_request_duration_seconds_count\{.*\} 1$/m);
  });

  it("is 500 without the cause where a metric cannot be collected", async () => {
    const { ask, metrics, lines } = await start();
    metrics.registry.setDefaultLabels({});
    metrics.registry.metrics = () => Promise.reject(new Error("inner matter"));
    const response = await ask("/metrics", { headers: { "X-Request-Id": "probe-1" } });
    expect(response.status).toBe(500);
    expect(await response.text()).not.toContain("inner matter");
    expect(lines()).toContainEqual(expect.objectContaining({ level: "error", requestId: "probe-1" }));
  });
});

describe("everything else", () => {
  it.each(["/health/live", "/health/ready", "/metrics"])(
    "HEAD %s has the headers of GET and no body",
    async (path) => {
      const { ask } = await start();
      const response = await ask(path, { method: "HEAD" });
      expect(response.status).toBe(200);
      expect(Number(response.headers.get("content-length"))).toBeGreaterThan(0);
      expect(await response.text()).toBe("");
    },
  );

  it.each(["/", "/health", "/health/ready/", "/metrics/x", "//"])("%s is 404", async (path) => {
    const { ask } = await start();
    const response = await ask(path);
    expect(response.status).toBe(404);
    expect(response.headers.get("content-type")).toBe("application/problem+json");
    expect(await response.json()).toMatchObject({
      status: 404,
      code: "not_found",
      requestId: response.headers.get("x-request-id"),
    });
  });

  it.each(["POST", "PUT", "DELETE", "OPTIONS"])("%s is 405 with Allow", async (method) => {
    const { ask } = await start();
    const response = await ask("/metrics", { method });
    expect(response.status).toBe(405);
    expect(response.headers.get("allow")).toBe("GET, HEAD");
    expect(await response.json()).toMatchObject({ status: 405, code: "method_not_allowed" });
  });
});

describe("close", () => {
  it("ends at once, with connections open", async () => {
    const { server, port, ask } = await start();
    await (await ask("/health/live")).text();
    const socket = connect(port, "127.0.0.1");
    await once(socket, "connect");
    const began = stopwatch();
    await server.close(500);
    expect(began()).toBeLessThan(3000);
    await expect(ask("/health/live")).rejects.toThrow();
    socket.destroy();
  });

  it("a port that is taken is an error of listen", async () => {
    const { port } = await start();
    const { server } = await start();
    await server.close(500);
    await expect(server.listen("127.0.0.1", port)).rejects.toMatchObject({ code: "EADDRINUSE" });
  });
});
