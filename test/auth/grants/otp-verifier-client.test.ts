/** phone_otp where the OTP verifier, a service of somebody else, does not answer as its contract says. */
import { createServer, type RequestListener, type Server } from "node:http";
import { createServer as createTcpServer, type Socket, type Server as TcpServer } from "node:net";
import { beforeAll, describe, expect, test } from "vitest";
import { createOtpChecks } from "../../../src/auth/grants/otp-verifier-client.ts";
import { UnknownVerdict } from "../../../src/auth/limits/guessing.ts";
import { ErrorKinds } from "../../../src/platform/base/errors.ts";
import { RequestContext } from "../../../src/platform/base/request-context.ts";
import { type Answer, type AuthApi, authApi, mobileApp } from "../../support/auth-api.ts";
import { type AuthServer, startAuthServer } from "../../support/auth-server.ts";
import { finding, replaceLookup, startBusyServer } from "../../support/busy-server.ts";
import { captureLog } from "../../support/captured-log.ts";
import { stopwatch } from "../../support/stopwatch.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

function expectRefused({ status, body }: Answer): void {
  expect({ status, body }).toMatchObject({ status: 400, body: { error: "invalid_grant" } });
}

function portOf(server: TcpServer): number {
  const address = server.address();
  return typeof address === "object" && address ? address.port : 0;
}

function expectIssued({ status, text }: Answer): void {
  expect(status, text).toBe(200);
}

describe("phone_otp where the verifier does not answer as its contract says", () => {
  let verifier: Server;
  let behave: RequestListener;
  let server: AuthServer;
  let api: AuthApi;
  let phone: string;
  const asked: { url: string | undefined; body: string; requestId: unknown }[] = [];
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    verifier = createServer((request, response) => {
      let body = "";
      request.setEncoding("utf8").on("data", (text: string) => {
        body += text;
      });
      request.on("end", () => {
        asked.push({ url: request.url, body, requestId: request.headers["x-request-id"] });
        behave(request, response);
      });
    });
    cleanup.defer(() => {
      verifier.closeAllConnections();
      verifier.close();
    });
    await new Promise<void>((resolve) => verifier.listen(0, "127.0.0.1", resolve));
    server = await startAuthServer("PGlite", {
      env: { OTP_VERIFIER_URL: `http://127.0.0.1:${port()}/otp/` },
    });
    cleanup.defer(() => server.stop());
    api = authApi(server.base);
    phone = (await api.newIdentity()).phone;
  });

  const port = () => portOf(verifier);
  const json = { "content-type": "application/json" };
  const respondWith =
    (status: number, body: string, headers: Record<string, string> = json): RequestListener =>
    (_, response) =>
      void response.writeHead(status, headers).end(body);
  const request = () => api.token({ grant_type: "phone_otp", phone, password: "123456" });

  test("it is called as its contract says, once for each attempt", async () => {
    asked.length = 0;
    behave = respondWith(200, '{"verified":true}');
    await api.call("generateTokens", {
      as: mobileApp,
      form: { grant_type: "phone_otp", phone: phone.replace("+1", "+1 "), password: "123456" },
      headers: { "x-request-id": "asked-1" },
    });
    await api.token({ grant_type: "phone_otp", phone });
    expect(asked).toMatchObject([
      { url: "/otp/v1/verifications/check", requestId: "asked-1" },
      { url: "/otp/v1/verifications/check" },
    ]);
    expect(asked.map(({ body }) => JSON.parse(body))).toEqual([{ phone, code: "123456" }, { phone }]);
  });

  test("its no, and its refusal of the input, are invalid_grant", async () => {
    behave = respondWith(200, '{"verified":false}');
    expectRefused(await request());
    behave = respondWith(400, '{"code":"invalid_request"}', { "content-type": "application/problem+json" });
    expectRefused(await request());
  });

  const drip: RequestListener = (_, response) => {
    response.writeHead(200, json);
    const timer = setInterval(() => response.write(" "), 50);
    response.on("close", () => clearInterval(timer));
  };
  test.each<[string, RequestListener]>([
    ["never answers", () => undefined],
    ["never ends its answer", drip],
    ["cuts the connection", (_, response) => void response.destroy()],
    [
      "cuts the connection within its answer",
      (_, response) => {
        response.writeHead(200, { ...json, "content-length": "99" }).write('{"verified":true');
        response.destroy();
      },
    ],
    [
      "answers with a broken chunk",
      ({ socket }) =>
        void socket.end(
          `HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n11\r\n{"verified":true}\r\nzz\r\n`,
        ),
    ],
    ["answers 500 with a yes", respondWith(500, '{"verified":true}')],
    ["answers 503", respondWith(503, "")],
    ["answers 404", respondWith(404, "{}")],
    ["answers 429", respondWith(429, "{}")],
    ["answers 204", (_, response) => void response.writeHead(204).end()],
    ["answers nothing", respondWith(200, "")],
    ["answers with something that is not JSON", respondWith(200, "<html>verified: true</html>")],
    ["answers null", respondWith(200, "null")],
    ["answers yes as a text", respondWith(200, '{"verified":"true"}')],
    ["answers yes as a number", respondWith(200, '{"verified":1}')],
    ["answers yes in a list", respondWith(200, '[{"verified":true}]')],
    ["answers another member", respondWith(200, '{"ok":true}')],
  ])("one that %s is a 503 within three seconds, and issues nothing", async (_, behaviour) => {
    behave = behaviour;
    // Of its own, as most of these count as guesses of the identity.
    phone = (await api.newIdentity()).phone;
    const began = stopwatch();
    const { status, body, headers } = await request();
    expect({ status, body }).toMatchObject({ status: 503, body: { error: "temporarily_unavailable" } });
    expect(Number(headers.get("retry-after"))).toBeGreaterThan(0);
    expect(began()).toBeLessThan(3_000);
  });

  test.each<[string, boolean, RequestListener]>([
    ["never answers", true, () => undefined],
    ["cuts the connection", true, (_, response) => void response.destroy()],
    ["answers 500", false, respondWith(500, "")],
    ["is behind a gateway that answers 502", true, respondWith(502, "")],
    ["is behind a gateway that answers 504", true, respondWith(504, "")],
    ["answers without a result", true, respondWith(200, "{}")],
    ["answers 503", false, respondWith(503, "")],
    ["answers 429", false, respondWith(429, "{}")],
    ["answers 404", false, respondWith(404, "{}")],
  ])("one that %s may have judged the code: %s", async (_, mayHaveJudged, behaviour) => {
    behave = behaviour;
    const { check } = createOtpChecks(`http://127.0.0.1:${port()}/otp`);
    const failure = await check(phone, "123456", new RequestContext(captureLog().logger)).catch(
      (error) => error,
    );
    expect(failure).toMatchObject({ kind: ErrorKinds.unavailable });
    expect(failure instanceof UnknownVerdict).toBe(mayHaveJudged);
  });

  test("without an address a check is unavailable, and no guess", async () => {
    const { check } = createOtpChecks(undefined);
    const checking = check(phone, "123456", new RequestContext(captureLog().logger));
    await expect(checking).rejects.toMatchObject({
      kind: ErrorKinds.unavailable,
      cause: new Error("OTP_VERIFIER_URL is not set"),
    });
  });

  test("one that is slow keeps 128 callers waiting, and no more", async () => {
    behave = () => undefined;
    const { limit, check } = createOtpChecks(`http://127.0.0.1:${port()}/otp`);
    const context = new RequestContext(captureLog().logger);
    const failures = Array.from({ length: 200 }, () =>
      limit.run(() => check(phone, "123456", context)).catch((error: unknown) => String(error)),
    );
    const refused = failures.slice(128);
    const first = await Promise.race([Promise.all(refused), ...failures.slice(0, 128)]);
    expect(first).toHaveLength(72);
    expect(new Set(await Promise.all(refused))).toEqual(
      new Set(["ServiceError: Too many codes are being checked. Try again in a moment."]),
    );
    behave = respondWith(200, '{"verified":true}');
    await Promise.all(failures);
    expect(await check(phone, "123456", context)).toBe(true);
  });

  test("one that closes its connections when they have served one request loses no code", async () => {
    const served = new WeakSet<object>();
    behave = (incoming, response) => {
      if (served.has(incoming.socket)) return void incoming.socket.destroy();
      served.add(incoming.socket);
      respondWith(200, '{"verified":true}', { ...json, connection: "keep-alive" })(incoming, response);
    };
    for (let time = 0; time < 3; time += 1) expectIssued(await request());
  });

  test.each<[string, (socket: Socket) => void]>([
    ["speaks no TLS", (socket) => void socket.end("HTTP/1.1 400 Bad Request\r\n\r\n")],
    ["cuts the connection within the handshake", (socket) => void socket.destroy()],
    ["never completes the handshake", () => undefined],
  ])("one that %s is a 503 within three seconds, and has not judged the code", async (_, connected) => {
    const server = createTcpServer((socket) => connected(socket.on("error", () => undefined)));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { check } = createOtpChecks(`https://127.0.0.1:${portOf(server)}`);
    const began = stopwatch();
    const failure = await check(phone, "123456", new RequestContext(captureLog().logger)).catch(
      (error) => error,
    );
    server.close();
    expect(failure).toMatchObject({ kind: ErrorKinds.unavailable });
    expect(failure).not.toBeInstanceOf(UnknownVerdict);
    expect(began()).toBeLessThan(3_000);
  });

  test("one that points elsewhere is not followed", async () => {
    asked.length = 0;
    behave = (incoming, response) =>
      incoming.url === "/yes"
        ? respondWith(200, '{"verified":true}')(incoming, response)
        : void response.writeHead(307, { location: `http://127.0.0.1:${port()}/yes` }).end();
    expect((await request()).status).toBe(503);
    expect(asked).toHaveLength(1);
  });

  test("attempts that could not be judged do not count against the phone", async () => {
    behave = respondWith(500, "");
    for (let attempt = 0; attempt < 15; attempt += 1) expect((await request()).status).toBe(503);
    behave = respondWith(200, '{"verified":true}');
    expectIssued(await request());
  });

  test("a code that it had, and did not answer in time, counts against the phone", async () => {
    const { phone } = await api.newIdentity();
    const guess = () => api.token({ grant_type: "phone_otp", phone, password: "123456" });
    behave = () => undefined;
    const late = await Promise.all(Array.from({ length: 10 }, guess));
    expect(late.map(({ status }) => status)).toEqual(Array(10).fill(503));
    behave = respondWith(200, '{"verified":true}');
    expect((await guess()).status).toBe(429);
  });

  test("one that is slow to connect to is reached, though its other address fails at once", async () => {
    const far = await startBusyServer(cleanup, "http", 700);
    replaceLookup(finding("127.0.0.1", "::1"));
    const { check } = createOtpChecks(`http://far.example:${far}`);
    expect(await check(phone, "123456", new RequestContext(captureLog().logger))).toBe(true);
  });

  test("one that is not there at all is a 503 within three seconds, and has not judged the code", async () => {
    const { check } = createOtpChecks(`http://127.0.0.1:${port()}/otp`);
    verifier.closeAllConnections();
    await new Promise((resolve) => verifier.close(resolve));
    const context = new RequestContext(captureLog().logger);
    const failure = await check(phone, "123456", context).catch((error) => error);
    expect(failure).toMatchObject({ kind: ErrorKinds.unavailable });
    expect(failure).not.toBeInstanceOf(UnknownVerdict);
    const began = stopwatch();
    expect((await request()).status).toBe(503);
    expect(began()).toBeLessThan(3_000);
  });
});
