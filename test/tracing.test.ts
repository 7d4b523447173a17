/** Traces of whole requests, as a collector gets them. */
import { randomBytes } from "node:crypto";
import { beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { authApi, internal, mobileApp, newPhone, type TokenPair } from "./support/auth-api.ts";
import { spawnAuthServer, startAuthServer } from "./support/auth-server.ts";
import { overConnect, overNativeGrpc } from "./support/introspectors.ts";
import { type OtlpReceiver, startOtlpReceiver } from "./support/otlp-receiver.ts";
import { findSecrets, type Secret } from "./support/secret-search.ts";
import { backends, closedPort } from "./support/servers.ts";
import { suiteCleanup } from "./support/suite-cleanup.ts";
import { waitFor } from "./support/wait-for.ts";

/** A caller with a trace of its own. */
class Caller {
  readonly traceId = randomBytes(16).toString("hex");
  readonly spanId = randomBytes(8).toString("hex");
  readonly headers = { traceparent: `00-${this.traceId}-${this.spanId}-01`, tracestate: "vendor=1" };
}

describe.each(backends)("on %s", (backend) => {
  const cleanup = suiteCleanup();
  const callers = { http: new Caller(), failed: new Caller(), grpc: new Caller(), connect: new Caller() };
  const secrets: Secret[] = [{ kind: "credentials", text: internal }];
  let receiver: OtlpReceiver;
  let log: Record<string, unknown>[];

  beforeAll(async () => {
    receiver = await startOtlpReceiver();
    cleanup.defer(() => receiver.stop());
    const env = {
      OTEL_EXPORTER_OTLP_ENDPOINT: receiver.endpoint,
      OTP_VERIFIER_URL: `http://127.0.0.1:${closedPort}`,
      LOGGING_LEVEL: "debug",
    };
    const server = await startAuthServer(backend, { env });
    cleanup.defer(() => server.stop());

    async function tokens(caller: Caller, form: Record<string, string>): Promise<Response> {
      const body = new URLSearchParams(form);
      const headers = { authorization: mobileApp, ...caller.headers };
      return fetch(`${server.base}/oauth2/v1/tokens?phone=no`, { method: "POST", headers, body });
    }
    const { id, phone } = await authApi(server.base).newIdentity();
    const issued = await tokens(callers.http, { grant_type: "auth", auth_id: id });
    const pair: TokenPair = JSON.parse(await issued.text());
    const [otherPhone, code] = [newPhone(), "735153"];
    const failed = await tokens(callers.failed, { grant_type: "phone_otp", phone: otherPhone, otp: code });
    expect([issued.status, failed.status]).toEqual([200, 503]);

    const grpc = overNativeGrpc(server);
    cleanup.defer(() => grpc.close());
    const as = (caller: Caller) => ({ headers: { authorization: internal, ...caller.headers } });
    await grpc.ask(pair.access_token, as(callers.grpc));
    await overConnect(server).ask(pair.access_token, as(callers.connect));
    secrets.push(
      { kind: "access_token", text: pair.access_token },
      { kind: "refresh_token", text: pair.refresh_token },
      ...[phone, otherPhone, phone.slice(1), otherPhone.slice(1)].map((text) => ({ kind: "phone", text })),
      { kind: "code", text: code },
      { kind: "identity", text: id },
    );
    await server.stop();
    log = server
      .logs()
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
  });

  function traceOf({ traceId }: Caller) {
    const spans = receiver.spans.filter((span) => span.traceId === traceId);
    const [request] = spans.filter(({ kind }) => kind === "server");
    if (!request) throw new Error("the request has no span");
    return { request, statements: spans.filter(({ kind }) => kind === "client") };
  }

  test("a request over HTTP is a part of its caller's trace, and its statements are parts of it", () => {
    const { request, statements } = traceOf(callers.http);
    expect(request).toMatchObject({
      name: "POST /api/auth/oauth2/v1/tokens",
      parentId: callers.http.spanId,
      traceState: "vendor=1",
      isError: false,
      service: "gatepost-auth",
      attributes: {
        "http.request.method": "POST",
        "http.route": "/api/auth/oauth2/v1/tokens",
        "url.path": "/api/auth/oauth2/v1/tokens",
        "http.response.status_code": 200,
      },
    });
    expect(statements.map(({ name }) => name)).toEqual([
      "SELECT auth.clients",
      "INSERT auth.redeemed_otp_proofs INSERT auth.authorizations INSERT auth.outbox",
    ]);
    for (const { parentId } of statements) expect(parentId).toBe(request.spanId);
  });

  test("a request that fails here says so in its span", () => {
    expect(traceOf(callers.failed).request).toMatchObject({
      parentId: callers.failed.spanId,
      isError: true,
      attributes: { "http.response.status_code": 503, "error.type": "503" },
    });
  });

  test.each([
    ["grpc", { "rpc.system.name": "grpc", "rpc.status_code": "OK" }],
    ["connect", { "rpc.system.name": "connectrpc" }],
  ] as const)(
    "a call over %s is a part of its caller's trace, and so is its look-up",
    (protocol, attributes) => {
      const { request, statements } = traceOf(callers[protocol]);
      const name = "auth.v1.IntrospectionService/Introspect";
      const of = { name, parentId: callers[protocol].spanId, isError: false };
      expect(request).toMatchObject({ ...of, attributes: { ...attributes, "rpc.method": name } });
      expect(statements).toMatchObject([{ name: "SELECT auth.authorizations", parentId: request.spanId }]);
    },
  );

  test("a request's lines in the log name its span", () => {
    for (const caller of Object.values(callers)) {
      const { traceId, spanId } = traceOf(caller).request;
      expect(log).toContainEqual(expect.objectContaining({ trace_id: traceId, span_id: spanId }));
    }
  });

  test("a request without a caller's trace begins one", () => {
    const span = receiver.spans.find(({ name }) => name === "POST /api/auth/v1/identities");
    expect(span).toMatchObject({ kind: "server", parentId: "" });
  });

  test("nothing that leaves has a secret in it", () => {
    expect(receiver.bytes.length).toBeGreaterThan(0);
    expect(findSecrets(secrets, Buffer.concat([...receiver.bytes]))).toEqual([]);
  });
});

describe("the modules of OpenTelemetry", () => {
  // Writes the address of each of them that a process loads, by import or by require. The interface alone is nothing that
  // traces; prom-client loads it.
  const hook = `
    import { registerHooks } from "node:module";
    registerHooks({ load(url, context, next) {
      if (/@opentelemetry.(?!api.)/.test(url)) process.stderr.write("LOADED " + url + "\\n");
      return next(url, context);
    } });`;
  const NODE_OPTIONS = `--import=data:text/javascript,${encodeURIComponent(hook)}`;

  test("are not loaded where nothing is traced", async () => {
    const server = await spawnAuthServer("PGlite", { env: { NODE_OPTIONS } });
    onTestFinished(() => server.stop());
    await authApi(server.base).newIdentity();
    expect(server.logs()).not.toContain("LOADED");
  });

  test("are loaded where it is; while nobody takes the traces, requests are answered, and the log says so", async () => {
    const env = {
      NODE_OPTIONS,
      OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${closedPort}`,
      OTEL_EXPORTER_OTLP_TIMEOUT: "500",
    };
    const server = await spawnAuthServer("PGlite", { env });
    onTestFinished(() => server.stop());
    await authApi(server.base).newIdentity();
    await waitFor(() => expect(server.logs()).toContain("Traces could not be sent"));
    await authApi(server.base).newIdentity();
    expect(server.logs()).toContain("LOADED");
    await server.stop();
    expect(server.child.exitCode).toBe(0);
  });
});
