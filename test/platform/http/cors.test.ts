/** One policy for pages of other origins, whichever protocol they speak. */
import { Hono } from "hono";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { corsPolicy, httpCors } from "../../../src/platform/http/cors.ts";
import { contractTexts, loadContract } from "../../../src/platform/openapi/document.ts";
import { type RpcServers, startRpcServers } from "../../support/rpc-servers.ts";

const origin = "https://app.example";
const app = new Hono().use(httpCors([origin])).get("/", (c) => c.text("ok"));
let servers: RpcServers;
beforeAll(async () => {
  servers = await startRpcServers({ corsOrigins: [origin] });
});
afterAll(() => servers.close());

/** What both answer to the same request, but for the methods, which are those of each path. */
async function answers(init: RequestInit) {
  const rpc = `http://127.0.0.1:${servers.http1Port}/auth.v1.IntrospectionService/Introspect`;
  const [http, connect] = await Promise.all([app.request("/", init), fetch(rpc, init)]);
  const headersOf = ({ headers }: Response) =>
    Object.fromEntries(
      [...headers].filter(
        ([name]) => name.startsWith("access-control-") && name !== "access-control-allow-methods",
      ),
    );
  return { http: headersOf(http), connect: headersOf(connect) };
}

describe("the HTTP APIs and the RPC protocols", () => {
  it("agree on what a page may send, and for how long", async () => {
    const { http, connect } = await answers({ method: "OPTIONS", headers: { origin } });
    expect(http).toEqual(connect);
    expect(http).toMatchObject({ "access-control-allow-origin": origin, "access-control-max-age": "600" });
    const allowed = http["access-control-allow-headers"]?.toLowerCase().split(",");
    for (const name of ["authorization", "content-type", "x-api-key", "connect-protocol-version"]) {
      expect(allowed).toContain(name);
    }
  });

  it("agree on what a page may read", async () => {
    const { http, connect } = await answers({ headers: { origin } });
    expect(http).toEqual(connect);
    expect(http["access-control-expose-headers"]?.split(",")).toContain("X-Request-Id");
  });

  it("let no other origin in", async () => {
    for (const method of ["OPTIONS", "GET"]) {
      const { http, connect } = await answers({ method, headers: { origin: "https://evil.example" } });
      for (const headers of [http, connect])
        expect(headers).not.toHaveProperty("access-control-allow-origin");
    }
  });
});

it("lets pages send and read the headers of push's operations", () => {
  expect(corsPolicy.allowedHeaders).toEqual(
    expect.arrayContaining(["barrier-user-utc-offset", "Idempotency-Key"]),
  );
  expect(corsPolicy.exposedHeaders).toContain("Notification-Id");
});

it("allows the methods that the APIs have", async () => {
  const documents = await Promise.all(
    ["auth", "otp-verifier"].map((name) => loadContract(contractTexts(name))),
  );
  const methods = documents.flatMap(({ operations }) => operations.map(({ method }) => method.toUpperCase()));
  expect([...corsPolicy.methods].sort()).toEqual([...new Set([...methods, "HEAD"])].sort());
});
