/** Processes whose clocks are an hour off: the database's clock decides, so nobody notices. */
import { decodeJwt } from "jose";
import { beforeAll, describe, expect, test } from "vitest";
import { authApi, basic, lasting, type TokenPair } from "../support/auth-api.ts";
import { withClients } from "../support/auth-fleet.ts";
import { type AuthServer, startAuthServer } from "../support/auth-server.ts";
import { createAuthStore } from "../support/auth-store.ts";
import { backends } from "../support/servers.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";
import { waitFor } from "../support/wait-for.ts";

const offsets = { ahead: 3600, behind: -3600, right: 0 };
const brief = basic("brief", "brief-secret");

describe.runIf(backends.includes("PostgreSQL"))("clocks that differ", () => {
  const servers = new Map<keyof typeof offsets, AuthServer>();
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    const store = await createAuthStore("PostgreSQL");
    cleanup.defer(() => store.drop());
    const clients = withClients({
      clientId: "brief",
      clientSecret: "brief-secret",
      grantTypes: ["auth", "refresh_token"],
      tokenSettings: { refreshGraceSeconds: 3 },
    });
    for (const name of ["ahead", "behind", "right"] as const) {
      const clock = { now: () => Date.now() + offsets[name] * 1000 };
      const server = await startAuthServer("PostgreSQL", { env: { ...store.env, ...clients }, clock });
      cleanup.defer(() => server.stop());
      servers.set(name, server);
    }
  });
  const server = (name: keyof typeof offsets) => servers.get(name) ?? expect.fail("not started");
  const api = (name: keyof typeof offsets) => authApi(server(name).base);

  test.each(["ahead", "behind"] as const)(
    "a token of a process whose clock is %s has the database's times, and is active everywhere at once",
    async (name) => {
      const pair = await api(name).newPair((await api("right").newIdentity()).id);
      const { iat = 0, nbf = 0, exp = 0 } = decodeJwt(pair.access_token);
      expect(Math.abs(iat - Date.now() / 1000)).toBeLessThan(10);
      expect([nbf, exp]).toEqual([iat, iat + 900]);
      for (const other of servers.keys()) {
        expect(await api(other).introspect(pair.access_token)).toMatchObject({ active: true });
      }
      expect(server(name).logs()).toContain("The clocks of this process and of the database differ");
    },
  );

  test.each([
    ["behind", "ahead"],
    ["ahead", "behind"],
  ] as const)(
    "a retry of a refresh at %s that goes to %s gets the same pair, and reuse ends it",
    async (first, retry) => {
      const { id } = await api("right").newIdentity();
      const pair = await api("right").newPair(id, brief);
      const next = (await api(first).refresh(pair.refresh_token, brief)).body as TokenPair;
      expect((await api(retry).refresh(pair.refresh_token, brief)).body).toMatchObject(lasting(next));
      await waitFor(async () =>
        expect((await api(retry).refresh(pair.refresh_token, brief)).status).toBe(400),
      );
      expect(await api("right").introspect(next.access_token)).toEqual({ active: false });
    },
  );
});
