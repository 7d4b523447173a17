/** The sign-in that docs/auth/sign-in-from-an-app.md shows for a page, as it stands there, with the page's IndexedDB. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, expect, test } from "vitest";
import { basic, internal } from "../../support/auth-api.ts";
import { type AuthServer, startAuthServer } from "../../support/auth-server.ts";
import { generousLimits, newMobilePhone, sentCode } from "../../support/sent-code.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

interface SignIn {
  begin(phone: string): Promise<void>;
  resend(): Promise<void>;
  enter(otp: string): Promise<boolean>;
  accessToken(): Promise<string | undefined>;
  signOut(): Promise<void>;
}

const origin = "http://localhost:5173";
let server: AuthServer;
let page: SignIn;
let kept: Map<string, unknown>;
const cleanup = suiteCleanup();
beforeAll(async () => {
  server = await startAuthServer("PGlite", { env: { CORS_ORIGINS: origin, ...generousLimits } });
  cleanup.defer(() => server.stop());
  kept = new Map();
  Reflect.set(globalThis, "indexedDB", databaseOf(kept));
  cleanup.defer(() => void Reflect.deleteProperty(globalThis, "indexedDB"));
  const source = readFileSync(join(import.meta.dirname, "page/sign-in.js"), "utf8");
  const here = source.replace("http://127.0.0.1:8080/api/auth", server.settings.issuer);
  page = await import(`data:text/javascript,${encodeURIComponent(here)}`);
});

/** As much of IndexedDB as the page uses: values are cloned, as there. */
function databaseOf(values: Map<string, unknown>) {
  const store = {
    get: (name: string) => ({ result: structuredClone(values.get(name)) }),
    put: (value: unknown, name: string) => ({ result: values.set(name, structuredClone(value)) && name }),
  };
  const transaction = () => {
    const begun = { objectStore: () => store, oncomplete: () => undefined };
    setImmediate(() => begun.oncomplete());
    return begun;
  };
  return {
    open() {
      const opening = { result: { transaction }, onsuccess: () => undefined };
      setImmediate(() => opening.onsuccess());
      return opening;
    },
  };
}

async function introspected(token: string | undefined): Promise<unknown> {
  const headers = { authorization: basic("api", "api-dev-secret") };
  const body = new URLSearchParams({ token: token ?? "" });
  const endpoint = `${server.settings.issuer}/oauth2/v1/introspect`;
  return (await fetch(endpoint, { method: "POST", headers, body })).json();
}

test("signs up a phone, takes a second code, refreshes, shows its session and signs out", async () => {
  const phone = newMobilePhone();
  expect(await page.accessToken()).toBeUndefined();
  await page.begin(phone);
  await sentCode([server], phone);
  await expect
    .poll(
      () =>
        page.resend().then(
          () => true,
          () => false,
        ),
      { timeout: 5_000 },
    )
    .toBe(true);
  const otp = await sentCode([server], phone);
  const shown = await fetch(`${server.origin}/otp-verifier/v1/messages?phone=${encodeURIComponent(phone)}`);
  expect(await shown.json()).toMatchObject({ messages: [{ code: otp }, {}] });
  expect(await page.enter(otp === "000000" ? "000001" : "000000")).toBe(false);
  expect(await page.enter(otp)).toBe(true);
  const first = await page.accessToken();
  expect(await introspected(first)).toMatchObject({
    active: true,
    client_id: "app",
    scope: "profile orders",
  });
  expect(await page.accessToken()).toBe(first);

  const pair = Object(kept.get("pair"));
  kept.set("pair", { ...pair, refreshAt: 0 });
  const second = await page.accessToken();
  expect(second).not.toBe(first);
  const sessions = `${server.settings.issuer}/v1/me/authorizations`;
  const ended = await fetch(sessions, { method: "DELETE", headers: { authorization: `Bearer ${second}` } });
  expect(ended.status).toBe(403);
  const { sub } = Object(await introspected(second));
  const listed = await fetch(`${server.settings.issuer}/v1/identities/${sub}/authorizations`, {
    headers: { authorization: internal },
  });
  expect(await listed.json()).toMatchObject({ content: [{ clientId: "app", deviceName: "Browser" }] });

  await page.signOut();
  expect(await page.accessToken()).toBeUndefined();
  expect(await introspected(second)).toEqual({ active: false });
});

test("keeps a key that nobody can read, and says what was refused", async () => {
  const { privateKey } = Object(kept.get("keys"));
  await expect(crypto.subtle.exportKey("jwk", privateKey)).rejects.toThrow();
  await expect(page.begin("+12025")).rejects.toMatchObject({ error: "access_denied" });
});

test("may send its proof and read the nonce from its own origin", async () => {
  const preflight = await fetch(`${server.settings.issuer}/oauth2/v1/tokens`, {
    method: "OPTIONS",
    headers: { origin, "access-control-request-method": "POST", "access-control-request-headers": "dpop" },
  });
  expect(preflight.status).toBe(204);
  expect(preflight.headers.get("access-control-allow-headers")).toMatch(/\bDPoP\b/);
  expect(preflight.headers.get("access-control-expose-headers")).toMatch(/\bDPoP-Nonce\b/);
});
