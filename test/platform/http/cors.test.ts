/** One policy for pages of other origins, whichever protocol they speak. */
import { beforeAll, describe, expect, it } from "vitest";
import { corsPolicy } from "../../../src/platform/door/cors-policy.ts";
import { createHttpServer } from "../../../src/platform/http/server.ts";
import { apiHeaders } from "../../../src/platform/openapi/api-headers.ts";
import { contractTexts, loadContract } from "../../../src/platform/openapi/document.ts";
import { rpcHeaders } from "../../../src/platform/rpc/service.ts";
import { captureLog } from "../../support/captured-log.ts";
import { startRpcServers } from "../../support/rpc-servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

const origin = "https://app.example";
const documents = await Promise.all(
  ["auth", "push-orchestration", "otp-verifier"].map((name) => loadContract(contractTexts(name))),
);
const policy = corsPolicy([origin], [...documents.map(apiHeaders), rpcHeaders]);
const { logger } = captureLog();
let urls: readonly [http: string, rpc: string];
/** The methods of the requests that came through to the HTTP APIs. */
const served: string[] = [];
const cleanup = suiteCleanup();
beforeAll(async () => {
  const servers = await startRpcServers({ cors: policy });
  cleanup.defer(() => servers.close());
  const http = createHttpServer({ logger });
  http.serve({
    fetch({ method }) {
      served.push(method);
      return new Response("ok");
    },
    cors: policy,
  });
  cleanup.defer(() => http.close(0));
  const port = await http.listen("127.0.0.1", 0);
  const path = "/auth.v1.IntrospectionService/Introspect";
  urls = [`http://127.0.0.1:${port}/`, `http://127.0.0.1:${servers.http1Port}${path}`];
});

/** The headers for pages in the responses of both to the same request. */
async function answers(init: RequestInit) {
  const headersOf = ({ headers }: Response) =>
    Object.fromEntries([...headers].filter(([name]) => name.startsWith("access-control-")));
  const [http = {}, connect] = (await Promise.all(urls.map((url) => fetch(url, init)))).map(headersOf);
  return { http, connect };
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

  it("respond to a preflight at the door, with the caller's request id", async () => {
    const headers = { origin, "x-request-id": "mine" };
    served.length = 0;
    const responses = await Promise.all(urls.map((url) => fetch(url, { method: "OPTIONS", headers })));
    expect(responses.map((response) => response.headers.get("x-request-id"))).toEqual(["mine", "mine"]);
    await fetch(urls[0], { headers });
    expect(served).toEqual(["GET"]);
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

it("lets pages send every header that an operation takes, and read every one of its response", () => {
  const sent = documents.flatMap(({ operations }) =>
    operations.flatMap(({ parameters }) => parameters.filter((one) => one.in === "header")),
  );
  expect(policy.allowedHeaders).toEqual(expect.arrayContaining(sent.map(({ name }) => name)));
  expect(policy.allowedHeaders).toEqual(
    expect.arrayContaining([
      ...["X-Api-Key", "barrier-user-utc-offset", "Idempotency-Key", "DPoP", "OAuth-Client-Attestation"],
    ]),
  );
  expect(policy.exposedHeaders).toEqual(
    expect.arrayContaining(["ETag", "Notification-Id", "Retry-After", "WWW-Authenticate", "DPoP-Nonce"]),
  );
});

it("names each header once, whatever its case, and those of no API that is not there", () => {
  const { allowedHeaders, exposedHeaders } = corsPolicy(
    [],
    [{ requestHeaders: ["authorization", "X-Own"], responseHeaders: ["etag"] }],
  );
  for (const names of [allowedHeaders, exposedHeaders, policy.allowedHeaders, policy.exposedHeaders]) {
    const lower = names.map((name) => name.toLowerCase());
    expect(new Set(lower).size).toBe(lower.length);
  }
  expect(allowedHeaders).toContain("X-Own");
  expect(allowedHeaders).not.toContain("X-Api-Key");
});

it("allows the methods that the APIs have", () => {
  const methods = documents.flatMap(({ operations }) => operations.map(({ method }) => method.toUpperCase()));
  expect([...policy.methods].sort()).toEqual([...new Set([...methods, "HEAD"])].sort());
});
