/** Guessing client secrets; and that no response to a guess, and no time that it takes, gives a hint. */
import { randomUUID } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import { type Answer, type AuthApi, authApi, backoffice, basic, newPhone } from "../../support/auth-api.ts";
import { withClients } from "../../support/auth-fleet.ts";
import { type AuthServer, startAuthServer } from "../../support/auth-server.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { guessesAt, oneByOne, repeat, statuses, times } from "./guessing-fixture.ts";

/** The response without what differs between any two requests. */
function visible({ status, text, headers }: Answer) {
  const { "x-request-id": _id, date: _date, ...rest } = Object.fromEntries(headers);
  return { status, text, headers: rest };
}

/** The times of two requests, in milliseconds. */
type Pair = readonly [number, number];

/** The ratio of the fastest of each: on a busy machine, all others may have waited. */
function ratioOfFastest(pairs: readonly Pair[]): number {
  return Math.min(...pairs.map(([first]) => first)) / Math.min(...pairs.map(([, second]) => second));
}

describe.each(backends)("guessing on %s", (backend) => {
  let server: AuthServer;
  let api: AuthApi;
  const plus = { clientId: "plus", clientSecret: "a+b%20c", grantTypes: ["auth"] };
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    server = await startAuthServer(backend, { env: withClients(plus) });
    cleanup.defer(() => server.stop());
    api = authApi(server.base);
  });

  const { guess, guessCode, someone } = guessesAt(() => api);

  describe("at a client's secret", () => {
    const use = (as: string) => api.token({ grant_type: "auth", auth_id: "nobody" }, as);

    test("is in vain, however often and whoever the client, and does not lock the client out", async () => {
      const clients = ["plus", "backend", "unknown", "internal"];
      const responses = await times(100, (n) => use(basic(clients[n % 4] ?? "", `guess ${n}`)));
      expect(statuses(responses)).toEqual(repeat(100, 400));
      expect(new Set(responses.map(({ text }) => JSON.parse(text).error))).toEqual(
        new Set(["invalid_client"]),
      );
      const { id } = await api.newIdentity();
      // Also if it is encoded in the other way.
      for (const secret of [plus.clientSecret, encodeURIComponent(plus.clientSecret)]) {
        await times(5, () => api.newPair(id, basic("plus", secret)));
      }
      expect((await use(backoffice)).body).toMatchObject({ error: "unauthorized_client" });
    });

    test("costs no argon2, and as much for a client as for nobody", async () => {
      const time = async (as: string) => {
        const started = performance.now();
        expect((await use(as)).status).toBe(400);
        return performance.now() - started;
      };
      const samples = await oneByOne(
        Array(40).keys(),
        async (n): Promise<Pair> => [
          await time(basic("backend", `guess ${n}`)),
          await time(basic("unknown", `guess ${n}`)),
        ],
      );
      const ratio = ratioOfFastest(samples);
      // argon2 takes several times as long as such a request. A look into the database takes as long as all of the rest:
      // client-repository.test.ts counts those.
      expect(ratio).toBeLessThan(2);
      expect(ratio).toBeGreaterThan(1 / 2);
    });

    test("of the internal client is refused at every operation, and the client goes on", async () => {
      const as = basic("internal", "guess");
      const operations = ["getIdentity", "introspectToken", "revokeToken"];
      const responses = await times(50, (n) =>
        api.call(operations[n % 3] ?? "", {
          as,
          ...(n % 3 === 0 ? { path: { id: "nobody" } } : { form: { token: "x" } }),
        }),
      );
      expect(statuses(responses)).toEqual(repeat(50, 401));
      const { id } = await api.newIdentity();
      expect(await api.introspect((await api.newPair(id)).access_token)).toMatchObject({ active: true });
    });
  });

  describe("learns nothing", () => {
    test("from the response: for any account and any error it is the same but for the request's id", async () => {
      const { id, phone } = await someone();
      const { id: without } = await api.newIdentity();
      const email = `${randomUUID()}@example.com`;
      await someone({ email });
      const usernames = [id, phone, email, without, randomUUID(), newPhone(), `${randomUUID()}@example.com`];
      const responses = await oneByOne(usernames, (username) => guess(username));
      const byCode = await oneByOne([phone, newPhone(), "not a phone"], (text) => guessCode(text));
      const byAuth = await api.token({ grant_type: "auth", auth_id: randomUUID() });
      const byToken = await api.refresh(`gpr_${"A".repeat(128)}`);
      const form = { grant_type: "phone_otp_token", otp_verification_token: "x" };
      const byProof = await oneByOne([phone, newPhone()], (one) => api.token({ ...form, phone: one }));
      const all = [...responses, ...byCode, byAuth, byToken, ...byProof].map(visible);
      expect(all).toEqual(all.map(() => all[0]));
      expect(all[0]).toMatchObject({ status: 400 });
    });

    test("from the time: an unknown username takes as long as a known one", async () => {
      const known = await oneByOne(Array(25), async () => (await someone()).id);
      const time = async (username: string) => {
        const started = performance.now();
        expect((await guess(username)).status).toBe(400);
        return performance.now() - started;
      };
      const measure = async () => {
        const samples = await oneByOne(
          known,
          async (username): Promise<Pair> => [await time(username), await time(randomUUID())],
        );
        return ratioOfFastest(samples);
      };
      const isLevel = (ratio: number) => ratio > 1 / 1.6 && ratio < 1.6;
      // On a busy machine one measurement may be wrong; a real difference is there in all of them.
      const ratios = [await measure()];
      while (ratios.length < 5 && !ratios.some(isLevel)) ratios.push(await measure());
      expect(ratios.some(isLevel), ratios.join(", ")).toBe(true);
    });
  });
});
