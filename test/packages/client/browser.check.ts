/** The client in a browser: pages that sign their user in, are opened again, and what happens to their storage. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { authApi } from "../../support/auth-api.ts";
import { type AuthServer, startAuthServer } from "../../support/auth-server.ts";
import { root } from "../../support/program.ts";
import { generousLimits, newMobilePhone, sentCode } from "../../support/sent-code.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { browserEntries, chromium, startPages, visit } from "./chromium.ts";

const cleanup = suiteCleanup();

if (chromium === undefined && process.env["CI"])
  throw new Error("Where CI is set, Chromium may not be missing: install it");

/** @returns says which of two pages came first, when both have come to a place */
function createMeeting(): (place: string) => Promise<string> {
  const waiting = new Map<string, () => void>();
  return async (place) => {
    const other = waiting.get(place);
    if (!other) return new Promise((resolve) => waiting.set(place, () => resolve("first")));
    other();
    return "second";
  };
}

describe.skipIf(chromium === undefined)("in a browser", () => {
  let server: AuthServer;
  let seen: unknown[];
  /** @returns what the pages tell that are opened in two tabs at once */
  let tabs: (...scripts: readonly string[]) => Promise<readonly unknown[]>;
  const phone = newMobilePhone();

  beforeAll(async () => {
    for (const name of ["client", "verifier"])
      execFileSync(process.execPath, ["scripts/packages/build.ts", name], { cwd: root });
    const profile = mkdtempSync(join(tmpdir(), "gatepost-chromium-"));
    cleanup.defer(() => rmSync(profile, { recursive: true, force: true, maxRetries: 5 }));
    const meet = createMeeting();
    const pages = await startPages(async (path, body) => {
      if (path === "/seen") seen.push(JSON.parse(body));
      if (path === "/code") return sentCode([server], phone);
      if (path.startsWith("/meet/")) return meet(path);
      const { base: authUrl, settings } = server;
      const entries = Object.keys(browserEntries());
      return JSON.stringify({ entries, authUrl, issuer: settings.issuer, phone });
    });
    cleanup.defer(() => pages.close());
    server = await startAuthServer("PGlite", { env: { ...generousLimits, CORS_ORIGINS: pages.origin } });
    cleanup.defer(() => server.stop());
    tabs = async (...scripts) => {
      seen = [];
      const paths = scripts.map((script) => `/test/packages/client/${script}`);
      const all = expect.poll(() => seen.length, { timeout: 30_000 }).toBe(scripts.length);
      await visit(chromium ?? "", `${pages.origin}/?${paths.join("&")}`, profile, all);
      return seen;
    };
  });

  test("pages that are opened again find their user and their key, and share both", async () => {
    const api = authApi(server.base);
    const { id } = await api.newIdentity({ phone });
    const [first] = await tabs("page.js");
    expect(first).toMatchObject({ isPersistent: true });
    const { key, token: old }: { key?: string; token?: string } = Object(first);
    const [second, third] = await tabs("page.js", "page.js");
    const { token }: { token?: string } = Object(second);
    expect(token).not.toBe(old);
    // One of them has signed out, and the other learns of it.
    const same = { isPersistent: true, found: id, key, token };
    expect([second, third]).toEqual(
      expect.arrayContaining([
        { ...same, ended: "none" },
        { ...same, ended: "ended" },
      ]),
    );
    expect(await api.introspect(token ?? "")).toEqual({ active: false });
  });

  test("what happens to its storage ends no session that is there", async () => {
    expect(await tabs("storage.js")).toEqual([
      {
        otherTab: undefined,
        afterReload: "ada",
        later: { now: "VersionError" },
        another:
          "GatepostError: The database another's is another program's: give browserStorage another name",
        UnknownError: "UnknownError: refused",
        QuotaExceededError: "QuotaExceededError: refused",
        SecurityError: { isPersistent: false },
        InvalidStateError: { isPersistent: false },
        without: { isPersistent: false },
      },
    ]);
  });
});
