/** The client in a browser: a page that signs its user in, and is opened again. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { authApi } from "../../support/auth-api.ts";
import { type AuthServer, startAuthServer } from "../../support/auth-server.ts";
import { root } from "../../support/program.ts";
import { generousLimits, newMobilePhone, sentCode } from "../../support/sent-code.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { browserEntries, chromium, startPage, visit } from "./chromium.ts";

interface Seen {
  readonly found?: string;
  readonly isPersistent: boolean;
  readonly token: string;
  readonly key: string;
}

const cleanup = suiteCleanup();

if (chromium === undefined && process.env["CI"])
  throw new Error("Where CI is set, Chromium may not be missing: install it");

test.skipIf(chromium === undefined)("a page that is opened again finds its user and its key", async () => {
  for (const name of ["client", "verifier"])
    execFileSync(process.execPath, ["scripts/packages/build.ts", name], { cwd: root });
  const profile = mkdtempSync(join(tmpdir(), "gatepost-chromium-"));
  cleanup.defer(() => rmSync(profile, { recursive: true, force: true, maxRetries: 5 }));
  const phone = newMobilePhone();
  let seen = Promise.withResolvers<Seen>();
  let server: AuthServer | undefined;
  const page = await startPage("/test/packages/client/page.js", async (path, body) => {
    if (path === "/seen") seen.resolve(JSON.parse(body));
    if (path === "/code" && server) return sentCode([server], phone);
    const { base: authUrl, settings } = server ?? {};
    const entries = Object.keys(browserEntries());
    return JSON.stringify({ entries, authUrl, issuer: settings?.issuer, phone });
  });
  cleanup.defer(() => page.close());
  const env = { ...generousLimits, CORS_ORIGINS: page.origin };
  server = await startAuthServer("PGlite", { env });
  cleanup.defer(async () => server?.stop());
  const api = authApi(server.base);
  const { id } = await api.newIdentity({ phone });

  const visited: Seen[] = [];
  for (let time = 0; time < 2; time++) {
    seen = Promise.withResolvers<Seen>();
    visited.push(await visit(chromium ?? "", page.origin, profile, seen.promise));
  }
  const [first, second] = visited;
  expect(first).toMatchObject({ isPersistent: true });
  expect(second).toMatchObject({ isPersistent: true, found: id, key: first?.key });
  expect(second?.token).not.toBe(first?.token);
  expect(await api.introspect(second?.token ?? "")).toMatchObject({ active: true, sub: id });
});
