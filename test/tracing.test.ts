/** Traces of whole requests, as a collector gets them. */
import { randomBytes } from "node:crypto";
import { beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { startFcmFake } from "../src/development/provider-fakes/fcm/fcm.ts";
import { fcmSettings } from "./push/end-to-end/world.ts";
import { authApi, internal, mobileApp, newPhone, type TokenPair } from "./support/auth-api.ts";
import { spawnAuthServer, startAuthServer } from "./support/auth-server.ts";
import { overConnect, overNativeGrpc } from "./support/introspectors.ts";
import { findNats, startNats } from "./support/nats.ts";
import { type OtlpReceiver, startOtlpReceiver } from "./support/otlp-receiver.ts";
import { startPushApart } from "./support/push-server.ts";
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
      isParentRemote: true,
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
    for (const statement of statements)
      expect(statement).toMatchObject({ parentId: request.spanId, isParentRemote: false });
  });

  test("a request that fails here says so in its span, and so does the call that failed", () => {
    const call = traceOf(callers.failed).statements.find(({ name }) => name === "POST");
    expect(call).toMatchObject({ isError: true, parentId: traceOf(callers.failed).request.spanId });
    expect(traceOf(callers.failed).request).toMatchObject({
      parentId: callers.failed.spanId,
      isError: true,
      attributes: { "http.response.status_code": 503, "error.type": "503" },
    });
  });

  test.each([
    ["grpc", { "rpc.system.name": "grpc", "rpc.response.status_code": "OK" }],
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

/** The database that production has, where this machine has one. */
const production = backends.at(-1) ?? "PGlite";

describe.skipIf(findNats() === undefined)("between services apart, with NATS between them", () => {
  const cleanup = suiteCleanup();
  const caller = { send: new Caller(), deletion: new Caller() };
  const secrets: Secret[] = [];
  let receiver: OtlpReceiver;

  beforeAll(async () => {
    receiver = await startOtlpReceiver();
    cleanup.defer(() => receiver.stop());
    const [nats, fcm] = [await startNats(), await startFcmFake()];
    cleanup.defer(() => nats.stop());
    cleanup.defer(() => fcm.close());
    const env = { BROKER_URL: nats.url, OTEL_EXPORTER_OTLP_ENDPOINT: receiver.endpoint };
    const auth = await startAuthServer(production, { env });
    cleanup.defer(() => auth.stop());
    const push = await startPushApart(production, auth, { env: { ...env, ...fcmSettings(fcm) } });
    cleanup.defer(() => push.stop());

    async function call(token: string, path: string, headers: object, json: object): Promise<void> {
      const response = await fetch(`${push.base}/v1/pushprovider/${path}`, {
        method: "POST",
        headers: { authorization: `Bearer ${token}`, "content-type": "application/json", ...headers },
        body: JSON.stringify(json),
      });
      expect(response.ok, await response.text()).toBe(true);
    }
    const [userToken, operatorToken] = [await push.userToken("u-15553331111"), await push.backofficeToken()];
    const device = {
      token: "device-735153735153",
      expiration: new Date(Date.now() + 3_600_000).toISOString(),
    };
    await call(userToken, "token", { "barrier-user-utc-offset": "0" }, device);
    const content = { title: "Hello Anna", message: "How are you, Anna?", utcOffsets: [0] };
    await call(operatorToken, "push", caller.send.headers, content);
    await waitFor(() => expect(fcm.ledger.token(device.token)).toBeDefined());
    const deletion = { method: "DELETE", headers: { authorization: internal, ...caller.deletion.headers } };
    expect((await fetch(`${auth.base}/v1/identities/u-15553331111`, deletion)).ok).toBe(true);
    await waitFor(() => expect(spanOf(caller.deletion, "process auth.identity.deleted.v1")).toBeDefined());
    await waitFor(() => expect(spanOf(caller.send, "process deliver-fcm")).toBeDefined());
    secrets.push(
      { kind: "access_token", text: userToken },
      { kind: "access_token", text: operatorToken },
      { kind: "device token", text: device.token },
      { kind: "user", text: "u-15553331111" },
      ...[content.title, content.message].map((text) => ({ kind: "content", text })),
      { kind: "api key", text: auth.settings.platformSecurityApiKeys[0] ?? "" },
    );
  });

  const spanOf = ({ traceId }: Caller, name: string) =>
    receiver.spans.find((span) => span.traceId === traceId && span.name === name);

  /** The names of the spans from one up to its trace's caller. Each of them has the caller's `tracestate`. */
  function way(of: Caller, name: string): string[] {
    const span = spanOf(of, name);
    if (!span) throw new Error(`there is no span ${name} in ${receiver.spans.map((one) => one.name)}`);
    const common = { traceId: of.traceId, traceState: of.headers.tracestate };
    expect(span).toMatchObject(common);
    const names = [span.name];
    for (let parent = span.parentId; parent !== of.spanId; ) {
      const around = receiver.spans.find(({ spanId }) => spanId === parent);
      if (!around) throw new Error(`the parent of ${names.at(-1)} was not sent`);
      expect(around).toMatchObject(common);
      names.push(around.name);
      parent = around.parentId;
    }
    return names;
  }

  test("the check of a token at the other service is a part of the request", () => {
    const name = "auth.v1.IntrospectionService/Introspect";
    const both = receiver.spans.filter((span) => span.traceId === caller.send.traceId && span.name === name);
    expect(both.map(({ kind }) => kind).toSorted()).toEqual(["client", "server"]);
    const [asked, asking] = both.toSorted((a, b) => b.kind.localeCompare(a.kind));
    expect(asked).toMatchObject({ parentId: asking?.spanId, isParentRemote: true });
    expect(asking).toMatchObject({
      isParentRemote: false,
      attributes: { "rpc.response.status_code": "OK" },
    });
  });

  test("a message to a provider is a part of the request that sent it, in other steps of the queue", () => {
    expect(way(caller.send, "send fcm")).toEqual([
      "send fcm",
      "process deliver-fcm",
      "POST /api/push-orchestration/v1/pushprovider/push",
    ]);
    expect(way(caller.send, "process plan").at(-1)).toBe("POST /api/push-orchestration/v1/pushprovider/push");
    expect(spanOf(caller.send, "send fcm")).toMatchObject({ kind: "client", isError: false });
  });

  test("what push does for a deleted identity is a part of the request that deleted it, through the broker", () => {
    const deletion = ["transaction", "DELETE /api/auth/v1/identities/{id}"];
    const type = "auth.identity.deleted.v1";
    expect(way(caller.deletion, `publish ${type}`)).toEqual([`publish ${type}`, ...deletion]);
    expect(way(caller.deletion, `process ${type}`)).toEqual([`process ${type}`, ...deletion]);
    const removal = receiver.spans.find(
      ({ traceId, name }) => traceId === caller.deletion.traceId && name.includes("DELETE push.devices"),
    );
    expect(way(caller.deletion, removal?.name ?? "no removal")).toContain(`process ${type}`);
    expect(spanOf(caller.deletion, `publish ${type}`)).toMatchObject({
      kind: "producer",
      attributes: { "messaging.system": "nats", "messaging.destination.name": type },
    });
  });

  test("nothing that leaves has a secret in it", () => {
    expect(findSecrets(secrets, Buffer.concat([...receiver.bytes]))).toEqual([]);
  });
});
