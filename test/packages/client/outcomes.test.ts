/** What becomes of one request of the client, and when it is repeated, without a server. */
import { afterEach, describe, expect, test, vi } from "vitest";
import { authorizedFetch } from "../../../packages/client/src/authorized-fetch.ts";
import { call } from "../../../packages/client/src/call.ts";
import { GatepostError, UnavailableError } from "../../../packages/client/src/errors.ts";
import { platformOf, repeated } from "../../../packages/client/src/platform.ts";
import { sendNotification } from "../../../packages/client/src/send-notification.ts";
import { createAuthClient, createPushClient } from "../../../packages/client/src/service-client.ts";
import { createSignIn } from "../../../packages/client/src/sign-in.ts";

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

const url = "https://api.example.com/api/auth";
const responding =
  (status: number, body: string | null, headers = {}) =>
  async () =>
    new Response(body, { status, headers });

describe("a call", () => {
  test("asks for no redirect and no cookies", async () => {
    const fetch = vi.fn(responding(200, "{}"));
    await call({ fetch }, url, { redirect: "follow", credentials: "include" });
    const init = { redirect: "manual", credentials: "omit" };
    expect(fetch).toHaveBeenCalledExactlyOnceWith(url, expect.objectContaining(init));
  });

  test("is given up in time where the body stalls, and the signal does not reach it", async () => {
    vi.useFakeTimers();
    const called = call({ fetch: async () => new Response(new ReadableStream()) }, url, {});
    const failed = expect(called).rejects.toMatchObject({ name: "UnavailableError", status: undefined });
    await vi.advanceTimersByTimeAsync(10_000);
    await failed;
  });

  test("is taken back where its signal aborts", async () => {
    const controller = new AbortController();
    const fetch = vi.fn(async (_url: unknown, _init?: RequestInit) => new Response(new ReadableStream()));
    const called = call({ fetch }, url, {}, controller.signal);
    controller.abort(new Error("no longer wanted"));
    await expect(called).rejects.toThrow("no longer wanted");
    expect(fetch.mock.calls[0]?.[1]?.signal?.aborted).toBe(true);
  });

  test("needs no URL that can be read, which React Native before 0.80 has not", async () => {
    vi.stubGlobal("URL", undefined);
    const fetch = () => Promise.reject(new TypeError("Network request failed"));
    await expect(call({ fetch }, url, {})).rejects.toThrow("api.example.com gave no complete response");
  });

  const slow = '{"error":"slow_down","error_description":"Later"}';
  const problem = '{"code":"unavailable","detail":"Not now"}';
  const in9 = { "retry-after": "Sun, 06 Nov 1994 08:49:37 GMT", date: "Sun, 06 Nov 1994 08:49:28 GMT" };
  test.each([
    [400, '{"error":"invalid_grant"}', {}, { name: "OAuthError", code: "invalid_grant", status: 400 }],
    [400, '{"error":"of_a_newer_server"}', {}, { name: "OAuthError", code: "of_a_newer_server" }],
    [404, '{"code":"not_found"}', {}, { name: "ProblemError", code: "not_found", status: 404 }],
    [404, '{"error":"Not Found"}', {}, { name: "GatepostError", status: 404 }],
    [413, "<html>", {}, { name: "GatepostError", status: 413, message: expect.stringContaining("base URL") }],
    [302, null, {}, { name: "GatepostError", status: 302, message: expect.stringContaining("a redirect") }],
    [408, "", {}, { name: "UnavailableError", code: undefined, status: 408, retryAfterSeconds: undefined }],
    [425, "", {}, { name: "UnavailableError" }],
    [429, slow, { "retry-after": "7" }, { code: "slow_down", message: "Later", retryAfterSeconds: 7 }],
    [429, slow, in9, { name: "UnavailableError", retryAfterSeconds: 9 }],
    [503, problem, {}, { name: "UnavailableError", code: "unavailable", message: "Not now" }],
    [502, "<html>", {}, { name: "UnavailableError", code: undefined, status: 502 }],
    [200, '{"cut', {}, { name: "UnavailableError", status: undefined }],
  ])("with the response %i %s %o fails with %o", async (status, body, headers, expected) => {
    const called = call({ fetch: responding(status, body, headers) }, url, {});
    await expect(called).rejects.toSatisfy((error) => error instanceof GatepostError);
    await expect(called).rejects.toMatchObject(expected);
  });
});

test("what has failed is repeated after a while, also where the server names none", async () => {
  let [elapsed, attempts] = [0, 0];
  const sleep = async (ms: number) => {
    elapsed += ms;
  };
  const platform = platformOf({ sleep, monotonic: () => elapsed });
  const act = async () => {
    if (++attempts > 20) throw new Error("Too often");
    throw new UnavailableError("Not now", { retryAfterSeconds: 0 });
  };
  await expect(repeated(platform, 30, act)).rejects.toThrow("Not now");
});

test("a send whose signal aborts between two tries ends at once", async () => {
  const controller = new AbortController();
  const push = createPushClient({ url, fetch: responding(503, "") });
  const sleep = () => {
    controller.abort(new Error("no longer wanted"));
    return new Promise<never>(() => {});
  };
  const options = { signal: controller.signal, platform: { sleep } };
  const notification = { audience: { users: ["u-1"] }, content: { texts: {} } };
  await expect(sendNotification(push, notification, options)).rejects.toThrow("no longer wanted");
});

test("a code is checked once, as each wrong one counts", async () => {
  const fetch = vi.fn(() => Promise.reject(new TypeError("fetch failed")));
  const session = { begin: async () => undefined };
  const signIn = createSignIn({ authUrl: url, client: { clientId: "app" }, session, platform: { fetch } });
  const pending = { authSession: "s", codeVerifier: "v", expiresInSeconds: 60, resendAfterSeconds: 30 };
  await expect(signIn.submit(pending, "000000")).rejects.toThrow(UnavailableError);
  expect(fetch).toHaveBeenCalledOnce();
});

test("an operation that is unknown is named", () => {
  const client = createAuthClient({ url });
  const id: string = "setPassword";
  expect(() => Reflect.apply(client.request, client, [id])).toThrow('unknown operation "setPassword"');
});

describe("a token", () => {
  const withToken = (origin: string) =>
    authorizedFetch({ session: { accessToken: async () => "t" }, origins: [origin] });

  test.each([
    "http://api.internal",
    "http://api",
    "http://localhost.evil.net",
    "http://localhost@evil.net",
    "http://localhost:80@evil.net",
    "http://127.0.0.1.evil.net",
    "ftp://localhost",
    "/api/auth",
  ])("is not sent to %s", (origin) => {
    expect(() => withToken(origin)).toThrow(TypeError);
  });

  test.each([
    "https://api.example.com/",
    "http://localhost:8080/api/auth",
    "http://127.0.0.1:8080/",
    "http://[::1]",
  ])("may be sent to %s", (origin) => {
    expect(() => withToken(origin)).not.toThrow();
  });
});
