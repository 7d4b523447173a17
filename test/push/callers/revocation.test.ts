/**
 * A revoked token opens nothing, from the moment on at which the revocation was answered; and where nobody can say
 * whether it was revoked, nothing either.
 */
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeAll, describe, expect, test } from "vitest";
import { systemClock } from "../../../src/platform/base/clock.ts";
import { createCallers } from "../../../src/push/callers/callers.ts";
import { type AuthApi, authApi, internal } from "../../support/auth-api.ts";
import { type AuthServer, startAuthServer } from "../../support/auth-server.ts";
import { captureLog } from "../../support/captured-log.ts";
import { type Front, openFront } from "../../support/front.ts";
import { type PushServer, startPushServer } from "../../support/push-server.ts";
import { backends } from "../../support/servers.ts";
import { stopwatch } from "../../support/stopwatch.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

const unavailable = { kind: { code: "unavailable", status: 503 } };

describe.each(backends)("the push API on %s", (backend) => {
  let server: PushServer;
  let auth: AuthApi;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    server = await startPushServer(backend);
    cleanup.defer(() => server.stop());
    auth = authApi(server.authBase);
  });

  const summary = async (token: string) => {
    const headers = { authorization: `Bearer ${token}` };
    const answer = await fetch(`${server.base}/v1/pushprovider/notifications-summary`, { headers });
    await answer.text();
    return answer.status;
  };
  const revoke = (token: string) => auth.call("revokeToken", { as: internal, form: { token } });

  test("takes a token until its revocation was answered, and not once afterwards", async () => {
    for (let round = 0; round < 10; round += 1) {
      const token = await server.userToken();
      expect(await summary(token)).toBe(200);
      expect((await revoke(token)).status).toBe(200);
      expect(await summary(token)).toBe(401);
    }
  });

  test("refuses the token of an authorization that ended, and of an identity that was deleted", async () => {
    const { id } = await auth.newIdentity();
    const { access_token, refresh_token } = await auth.newPair(id);
    const other = (await auth.newPair(id)).access_token;
    expect(await summary(access_token)).toBe(200);
    await revoke(refresh_token);
    expect(await summary(access_token)).toBe(401);
    expect(await summary(other)).toBe(200);
    await server.deleteIdentity(id);
    expect(await summary(other)).toBe(401);
  });

  test("refuses a revoked token of the wrong application as revoked: 401, not 403", async () => {
    const token = await server.backofficeToken();
    expect(await summary(token)).toBe(403);
    await revoke(token);
    expect(await summary(token)).toBe(401);
  });
});

describe("the auth service on another machine", () => {
  let server: AuthServer;
  let http: Front;
  let grpc: Front;
  let token: string;
  let revoked: string;
  let directory: string;
  const opened: { close(): void }[] = [];
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    directory = mkdtempSync(join(tmpdir(), "gatepost-test-"));
    cleanup.defer(() => rmSync(directory, { recursive: true, force: true }));
    http = await openFront();
    cleanup.defer(() => http.close());
    grpc = await openFront();
    cleanup.defer(() => grpc.close());
    server = await start();
    cleanup.defer(() => server.stop());
    const api = authApi(server.base);
    const { id } = await api.newIdentity();
    token = (await api.newPair(id)).access_token;
    revoked = (await api.newPair(id)).access_token;
  });
  afterEach(() => {
    for (const one of opened.splice(0)) one.close();
  });

  async function start(): Promise<AuthServer> {
    const env = { DATA_DIR: directory, OAUTH_SERVER_ISSUER: `${http.origin}/api/auth` };
    const started = await startAuthServer("PGlite", { env });
    http.leadTo(Number(new URL(started.origin).port));
    grpc.leadTo(Number(new URL(`http://${started.grpc}`).port));
    return started;
  }

  type Introspection = Parameters<typeof createCallers>[0]["introspection"];
  function callersOf(introspection: Introspection, log = captureLog()): ReturnType<typeof createCallers> {
    const callers = createCallers({
      issuer: server.settings.issuer,
      audience: "push",
      userAppClientIds: ["backend"],
      backofficeClientId: "backoffice",
      introspection,
      clock: systemClock,
      logger: log.logger,
    });
    opened.push(callers);
    return callers;
  }
  const apiKey = () => server.settings.platformSecurityApiKeys[0] ?? "";

  test("that refuses our key is named at the start, with what to do; one that is away is not", async () => {
    const log = captureLog();
    await callersOf({ url: grpc.origin, apiKey: apiKey() }, log).prepare();
    await callersOf({ url: "http://127.0.0.1:9", apiKey: apiKey() }, log).prepare();
    expect(log.lines()).toEqual([]);
    await callersOf({ url: grpc.origin, apiKey: "not the key of auth" }, log).prepare();
    expect(log.lines()).toMatchObject([
      { level: "error", msg: expect.stringMatching(/refuses PLATFORM_SECURITY_API_KEY.*: set it to/) },
    ]);
    expect(log.text()).not.toContain("not the key of auth");
  });

  test("while it is away nothing is taken that it has not been asked about; afterwards all is as it was", async () => {
    const callers = callersOf({ url: grpc.origin, apiKey: apiKey() });
    expect(await callers.user(`Bearer ${token}`)).toBeDefined();
    expect(await callers.user(`Bearer ${revoked}`)).toBeDefined();
    await authApi(server.base).call("revokeToken", { as: internal, form: { token: revoked } });
    expect(await callers.user(`Bearer ${revoked}`)).toBeUndefined();
    await server.stop();
    for (const one of [token, revoked]) {
      const started = stopwatch();
      await expect(callers.user(`Bearer ${one}`)).rejects.toMatchObject(unavailable);
      expect(started()).toBeLessThan(3_000);
    }
    server = await start();
    await expect
      .poll(() => callers.user(`Bearer ${token}`).catch(() => "away"))
      .toMatchObject({
        clientId: "backend",
      });
    expect(await callers.user(`Bearer ${revoked}`)).toBeUndefined();
  });

  test("is connected to before the first caller comes, if that is possible", async () => {
    const port = Number(new URL(`http://${server.grpc}`).port);
    await using fronts = new AsyncDisposableStack();
    const [here, away] = [await openFront(), await openFront()];
    for (const front of [here, away]) fronts.defer(() => front.close());
    here.leadTo(port);
    const prepared = callersOf({ url: here.origin, apiKey: apiKey() });
    const late = callersOf({ url: away.origin, apiKey: apiKey() });
    await Promise.all([prepared.prepare(), late.prepare()]);
    // Connections that there are stay.
    here.leadTo(undefined);
    expect(await prepared.user(`Bearer ${token}`)).toBeDefined();
    await expect(late.user(`Bearer ${token}`)).rejects.toMatchObject(unavailable);
    away.leadTo(port);
    await expect.poll(() => late.user(`Bearer ${token}`).catch(() => undefined)).toBeDefined();
  });

  test("one that takes connections and says nothing is given up after two seconds", async () => {
    const mute = createServer(() => undefined).listen(0, "127.0.0.1");
    await once(mute, "listening");
    const address = mute.address();
    const port = typeof address === "object" && address ? address.port : 0;
    const callers = callersOf({ url: `http://127.0.0.1:${port}`, apiKey: apiKey() });
    const started = stopwatch();
    await expect(callers.user(`Bearer ${token}`)).rejects.toMatchObject(unavailable);
    expect(started()).toBeLessThan(4_000);
    mute.close();
  });

  test("one that does not know our key cannot be asked: nothing is taken", async () => {
    const callers = callersOf({ url: grpc.origin, apiKey: "another-key-entirely" });
    await expect(callers.user(`Bearer ${token}`)).rejects.toMatchObject(unavailable);
  });

  test("its endpoint of RFC 7662 is asked as well, with a client's credentials", async () => {
    const callers = callersOf({ clientId: "internal", clientSecret: "internal-dev-secret" });
    const api = authApi(server.base);
    const fresh = (await api.newPair((await api.newIdentity()).id)).access_token;
    expect(await callers.user(`Bearer ${token}`)).toMatchObject({ clientId: "backend" });
    expect(await callers.user(`Bearer ${fresh}`)).toMatchObject({ clientId: "backend" });
    await api.call("revokeToken", { as: internal, form: { token: fresh } });
    expect(await callers.user(`Bearer ${fresh}`)).toBeUndefined();
    const strangers = callersOf({ clientId: "internal", clientSecret: "another-secret" });
    await expect(strangers.user(`Bearer ${token}`)).rejects.toMatchObject(unavailable);
  });

  test("without its address tokens are checked by signature and claims only", async () => {
    const callers = callersOf(undefined);
    expect(await callers.user(`Bearer ${revoked}`)).toMatchObject({ clientId: "backend" });
    expect(await callers.user(`Bearer ${token.slice(0, -4)}AAAA`)).toBeUndefined();
  });
});
