/**
 * kill -9 around a refresh: the client either has the new pair, or gets it by trying again. TEST_KILLS sets
 * how many times a process is killed at a random moment.
 */
import { randomInt } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import { decodeRefreshToken, hashPart } from "../../../src/auth/tokens/refresh-token.ts";
import { type AuthApi, authApi, basic, lasting, type TokenPair } from "../../support/auth-api.ts";
import { type AuthProcess, spawnAuthServer } from "../../support/auth-server.ts";
import { type AuthStore, createAuthStore } from "../../support/auth-store.ts";
import { type DatabaseGate, openDatabaseGate } from "../../support/database-gate.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";

const kills = Number(process.env["TEST_KILLS"] ?? 5);

/** A grace window that is still open when a slow machine has started the process again. */
const clients = {
  OAUTH_SERVER_CLIENTS: JSON.stringify([
    {
      clientId: "backend",
      clientSecret: "backend-dev-secret",
      grantTypes: ["auth", "refresh_token"],
      tokenSettings: { refreshGraceSeconds: 600 },
    },
    {
      clientId: "strict",
      clientSecret: "strict-secret",
      grantTypes: ["auth", "refresh_token"],
      tokenSettings: { refreshGraceSeconds: 0 },
    },
  ]),
};
const strict = basic("strict", "strict-secret");

/** The state of a client: the pairs that it got, and the token whose response never came. */
interface Ledger {
  readonly identityId: string;
  readonly answered: TokenPair[];
  unanswered: string | undefined;
}

function newest({ answered }: Ledger): TokenPair {
  return answered.at(-1) ?? expect.fail("no pair was answered");
}

async function newLedger(api: AuthApi): Promise<Ledger> {
  const { id } = await api.newIdentity();
  return { identityId: id, answered: [await api.newPair(id)], unanswered: undefined };
}

/** Refreshes until the process has been killed. */
async function refreshUntilGone(api: AuthApi, ledger: Ledger, answered: () => void): Promise<void> {
  for (;;) {
    const token = newest(ledger).refresh_token;
    ledger.unanswered = token;
    const response = await api.refresh(token).catch(() => undefined);
    if (!response) return;
    expect(response.status, response.text).toBe(200);
    ledger.answered.push(response.body as TokenPair);
    ledger.unanswered = undefined;
    answered();
  }
}

/** Checks at another process that a client's retry works. Returns whether the lost refresh had been committed. */
async function expectKept(api: AuthApi, ledger: Ledger): Promise<void> {
  expect((await api.introspect(newest(ledger).access_token)).active).toBe(true);
  const retried = await api.refresh(ledger.unanswered ?? newest(ledger).refresh_token);
  expect(retried.status, retried.text).toBe(200);
  const pair = retried.body as TokenPair;
  expect((await api.introspect(pair.access_token)).active).toBe(true);
  const again = await api.refresh(ledger.unanswered ?? newest(ledger).refresh_token);
  expect(again.body).toMatchObject(lasting(pair));
  const next = await api.refresh(pair.refresh_token);
  expect(next.status, next.text).toBe(200);
  ledger.answered.push(pair, next.body as TokenPair);
  ledger.unanswered = undefined;
}

describe.runIf(backends.includes("PostgreSQL"))("kill -9 of one of several processes: PostgreSQL", () => {
  let store: AuthStore;
  let survivor: AuthProcess;
  let api: AuthApi;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    store = await createAuthStore("PostgreSQL");
    cleanup.defer(() => store.drop());
    survivor = await spawnAuthServer("PostgreSQL", { env: { ...store.env, ...clients } });
    cleanup.defer(() => survivor.stop());
    api = authApi(survivor.base);
  });

  describe("with its way to the database held up", () => {
    let gate: DatabaseGate;
    const cleanup = suiteCleanup();
    beforeAll(async () => {
      gate = await openDatabaseGate(store.env["DB_HOST"] ?? "", Number(store.env["DB_PORT"]));
      cleanup.defer(() => gate.close());
    });

    async function storedHash(authorizationId: string): Promise<string> {
      return store.read(async (query) => {
        const statement = `select encode(refresh_hash, 'hex') as hash from auth.authorizations where id = '${authorizationId}'`;
        return String((await query(statement))[0]?.["hash"]);
      });
    }

    /** Starts a refresh at a process and kills it where it is held up. Resolves when it is gone. */
    async function killDuring(token: string, when: "before" | "after", as?: string): Promise<void> {
      const victim = await spawnAuthServer("PostgreSQL", {
        env: { ...store.env, ...clients, DB_HOST: "127.0.0.1", DB_PORT: String(gate.port) },
      });
      const { authorizationId, rotating } = decodeRefreshToken(token) ?? expect.fail("no refresh token");
      const presented = hashPart(rotating).toString("hex");
      expect(await storedHash(authorizationId)).toBe(presented);
      // Only the statement that rotates contains the hash of the token in this encoding.
      const held = gate.hold(`x${presented}`, when);
      const lost = authApi(victim.base, api.contract)
        .refresh(token, as)
        .then(
          () => "answered",
          () => "lost",
        );
      await held;
      if (when === "after") {
        await waitFor(async () => expect(await storedHash(authorizationId)).not.toBe(presented));
      }
      await victim.kill();
      expect(await lost).toBe("lost");
      await victim.stop();
    }

    test("killed between commit and answer, even a client without a window gets the pair, until it is presented", async () => {
      const first = await api.newPair((await api.newIdentity()).id, strict);
      await killDuring(first.refresh_token, "after", strict);
      // Longer than a process takes to say that it has seen a commit succeed.
      await new Promise((resolve) => setTimeout(resolve, 2_000));
      const retried = await api.refresh(first.refresh_token, strict);
      expect(retried.status, retried.text).toBe(200);
      const second = retried.body as TokenPair;
      expect((await api.refresh(first.refresh_token, strict)).body).toMatchObject(lasting(second));
      expect((await api.refresh(second.refresh_token, strict)).status).toBe(200);
      expect((await api.refresh(first.refresh_token, strict)).status).toBe(400);
      expect((await api.introspect(second.access_token)).active).toBe(false);
    });

    test.each([
      { moment: "before the rotation gets to the database", when: "before" },
      { moment: "between commit and answer", when: "after" },
    ] as const)(
      "killed $moment, it leaves the client able to get the pair by trying again",
      async ({ when }) => {
        const ledger = await newLedger(api);
        ledger.unanswered = newest(ledger).refresh_token;
        await killDuring(ledger.unanswered, when);
        await expectKept(api, ledger);
        expect(ledger.answered).toHaveLength(3);
      },
    );
  });

  test(
    `killed ${kills} times at random moments, every refresh is answered or can be retried`,
    async () => {
      for (let kill = 0; kill < kills; kill += 1) {
        // New ones: an authorization cannot be refreshed without end within one window.
        const ledgers = await Promise.all(Array.from({ length: 8 }, () => newLedger(api)));
        const victim = await spawnAuthServer("PostgreSQL", { env: { ...store.env, ...clients } });
        const victimApi = authApi(victim.base, api.contract);
        const enough = Promise.withResolvers<void>();
        const [target, start] = [randomInt(1, 60), answeredRefreshes(ledgers)];
        const loops = ledgers.map((ledger) =>
          refreshUntilGone(victimApi, ledger, () => {
            if (answeredRefreshes(ledgers) - start >= target) enough.resolve();
          }),
        );
        await Promise.race([enough.promise, Promise.all(loops)]);
        await victim.kill();
        await Promise.all(loops);
        await victim.stop();
        for (const ledger of ledgers) await expectKept(api, ledger);
      }
      const rows = await store.read((query) =>
        query("select 1 from auth.authorizations where revoked_at is not null and client_id <> 'strict'"),
      );
      expect(rows, "no authorization has ended").toEqual([]);
    },
    60_000 + kills * 10_000,
  );
});

function answeredRefreshes(ledgers: readonly Ledger[]): number {
  return ledgers.reduce((sum, { answered }) => sum + answered.length, 0);
}

describe("kill -9 of the only process: PGlite", () => {
  test("started again in the same directory, it keeps the pairs that it returned and returns those that it did not", async () => {
    const store = await createAuthStore("PGlite");
    let server = await spawnAuthServer("PGlite", { env: { ...store.env, ...clients } });
    const contract = authApi(server.base).contract;
    const ledgers = await Promise.all(
      Array.from({ length: 4 }, () => newLedger(authApi(server.base, contract))),
    );
    for (let kill = 0; kill < 2; kill += 1) {
      const enough = Promise.withResolvers<void>();
      const [target, start] = [randomInt(1, 30), answeredRefreshes(ledgers)];
      const loops = ledgers.map((ledger) =>
        refreshUntilGone(authApi(server.base, contract), ledger, () => {
          if (answeredRefreshes(ledgers) - start >= target) enough.resolve();
        }),
      );
      await Promise.race([enough.promise, Promise.all(loops)]);
      await server.kill();
      await Promise.all(loops);
      server = await spawnAuthServer("PGlite", { env: { ...store.env, ...clients } });
      for (const ledger of ledgers) await expectKept(authApi(server.base, contract), ledger);
    }
    await server.stop();
    await store.drop();
  });
});
