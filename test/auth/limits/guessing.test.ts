/** Guessing passwords, one-time codes and client secrets: the limits, and that responses give no hints. */
import { randomUUID } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import { attemptRules } from "../../../src/auth/limits/attempts.ts";
import {
  type Answer,
  type AuthApi,
  authApi,
  backoffice,
  basic,
  internal,
  mobileApp,
  newPhone,
} from "../../support/auth-api.ts";
import { withClients } from "../../support/auth-fleet.ts";
import { type AuthServer, startAuthServer } from "../../support/auth-server.ts";
import { type AuthStore, createAuthStore } from "../../support/auth-store.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

const { password: passwordRule, code: codeRule, client: clientRule, secret: secretRule } = attemptRules;

function times<T>(count: number, work: (index: number) => Promise<T>): Promise<T[]> {
  return Promise.all(Array.from({ length: count }, (_, index) => work(index)));
}

async function oneByOne<T, R>(items: Iterable<T>, work: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  for (const item of items) results.push(await work(item));
  return results;
}

const statuses = (responses: readonly Answer[]) => responses.map(({ status }) => status).sort();
const repeat = (count: number, status: number) => Array.from({ length: count }, () => status);

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
}

/** The response without what differs between any two requests. */
function visible({ status, text, headers }: Answer) {
  const { "x-request-id": _id, date: _date, ...rest } = Object.fromEntries(headers);
  return { status, text, headers: rest };
}

describe.each(backends)("guessing on %s", (backend) => {
  let store: AuthStore;
  let server: AuthServer;
  let api: AuthApi;
  const scapegoat = {
    clientId: "scapegoat",
    clientSecret: "scapegoat-secret",
    grantTypes: ["phone_otp", "password", "auth"],
  };
  const plus = { clientId: "plus", clientSecret: "a+b%20c", grantTypes: ["auth"] };
  const env = withClients(scapegoat, plus);
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    store = await createAuthStore(backend);
    cleanup.defer(() => store.drop());
    server = await startAuthServer(backend, { env: { ...store.env, ...env } });
    cleanup.defer(() => server.stop());
    api = authApi(server.base);
  });

  const guess = (username: string, password: string = randomUUID(), as = backoffice) =>
    api.token({ grant_type: "password", username, password }, as);
  const guessCode = (phone: string, password = "000000", as = mobileApp) =>
    api.token({ grant_type: "phone_otp", phone, password }, as);

  /** An identity with the password `right horse`. */
  async function someone(fields: { email?: string } = {}) {
    const identity = await api.newIdentity(fields);
    const json = { password: "right horse" };
    await api.call("setIdentityPassword", { as: internal, path: { id: identity.id }, json });
    return identity;
  }

  function expectLimited({ status, body, headers }: Answer, windowSeconds: number): void {
    expect({ status, body }).toMatchObject({ status: 429, body: { error: "slow_down" } });
    const seconds = Number(headers.get("retry-after"));
    expect(seconds).toBeGreaterThan(0);
    expect(seconds).toBeLessThanOrEqual(windowSeconds);
  }

  describe("at a password", () => {
    const { failures, windowSeconds } = passwordRule;

    test("ends after the failures of the rule, for the right password too, and says when to come back", async () => {
      const { id } = await someone();
      expect(statuses(await oneByOne(Array(failures), () => guess(id)))).toEqual(repeat(failures, 400));
      expectLimited(await guess(id), windowSeconds);
      expectLimited(await guess(id, "right horse"), windowSeconds);
    });

    test("does not outrun the count with 50 at once", async () => {
      const { id } = await someone();
      const responses = await times(50, () => guess(id));
      expect(statuses(responses)).toEqual([...repeat(failures, 400), ...repeat(50 - failures, 429)]);
    });

    test("is not made easier by spelling the phone in other ways", async () => {
      const { phone } = await someone();
      const [country, area, rest] = [phone.slice(0, 2), phone.slice(2, 5), phone.slice(5)];
      const spellings = [
        phone,
        `${country} (${area}) ${rest}`,
        `${country}-${area}-${rest}`,
        ` 1${area}${rest}`,
      ];
      const responses = await oneByOne(Array(failures).keys(), (n) => guess(spellings[n % 4] ?? ""));
      expect(statuses(responses)).toEqual(repeat(failures, 400));
      for (const spelling of spellings) expectLimited(await guess(spelling), windowSeconds);
    });

    test("is not made easier by the case of an e-mail address, in whatever alphabet", async () => {
      const email = `mick.${randomUUID()}@example.com`;
      await someone({ email });
      const upper = email.toUpperCase();
      // PostgreSQL takes the dotted capital and the Kelvin sign for capitals of i and k.
      const spellings = [
        email,
        upper,
        ` ${email}`,
        upper.replace("K", "\u212A"),
        upper.replace("I", "\u0130"),
      ];
      const responses = await oneByOne(spellings, (spelling) => guess(spelling, "right horse"));
      const right = spellings.filter((_, index) => responses[index]?.status === 200);
      expect(right).toEqual(expect.arrayContaining([email, upper]));
      await oneByOne(Array(failures), () => guess(email));
      for (const spelling of right) expectLimited(await guess(spelling, "right horse"), windowSeconds);
    });

    test.each(["X-Forwarded-For", "Forwarded", "X-Real-IP", "CF-Connecting-IP", "True-Client-IP"])(
      "is not made easier by %s",
      async (header) => {
        const { id } = await someone();
        const from = (n: number) =>
          api.call("generateTokens", {
            as: backoffice,
            form: { grant_type: "password", username: id, password: `guess ${n}` },
            headers: { [header]: header === "Forwarded" ? `for=192.0.2.${n}` : `192.0.2.${n}` },
          });
        expect(statuses(await times(failures + 5, from))).toEqual([
          ...repeat(failures, 400),
          ...repeat(5, 429),
        ]);
      },
    );

    test("counts across clients and leaves other accounts and other grants alone", async () => {
      const { id } = await someone();
      const { id: other } = await someone();
      await times(failures / 2, () => guess(id, "wrong", backoffice));
      await times(failures / 2, () => guess(id, "wrong", mobileApp));
      expectLimited(await guess(id, "right horse", mobileApp), windowSeconds);
      expect((await guess(other, "right horse")).status).toBe(200);
      await api.newPair(id);
    });

    test("starts anew after a success", async () => {
      const { id } = await someone();
      for (let round = 0; round < 2; round += 1) {
        expect(statuses(await times(failures - 1, () => guess(id)))).toEqual(repeat(failures - 1, 400));
        expect((await guess(id, "right horse")).status).toBe(200);
      }
    });

    test("is limited for an account that does not exist as for one that does", async () => {
      const [known, unknown] = [(await someone()).id, randomUUID()];
      const responses = await oneByOne([known, unknown], async (username) => {
        await times(failures, () => guess(username));
        return guess(username);
      });
      for (const response of responses) expectLimited(response, windowSeconds);
    });

    test("does not count a request that could not have been right: no grant, no scope, no password", async () => {
      const { id } = await someone();
      const form = { grant_type: "password", username: id };
      await times(failures, () => api.token(form, backoffice));
      await times(failures, () => api.token({ ...form, password: "x", scope: "everything" }, backoffice));
      await times(failures, () => api.token({ ...form, password: "x" }, basic("plus", "a+b%20c")));
      expect((await guess(id, "right horse")).status).toBe(200);
    });

    if (backend === "PGlite") return;
    test("is counted by all processes together", async () => {
      const second = await startAuthServer(backend, { env: { ...store.env, ...env } });
      const { id } = await someone();
      const form = { grant_type: "password", username: id, password: "wrong" };
      const apis = [api, authApi(second.base)];
      const responses = await times(50, async (n) => (apis[n % 2] ?? api).token(form, backoffice));
      await second.stop();
      expect(statuses(responses)).toEqual([...repeat(failures, 400), ...repeat(50 - failures, 429)]);
    });

    test("locks the owner out until the window ends and no longer", async () => {
      const { id } = await someone();
      await times(3 * failures, () => guess(id));
      expectLimited(await guess(id, "right horse"), windowSeconds);
      // Let the window end.
      await store.read((query) =>
        query("update auth.attempts set expire = now() - interval '1 millisecond'"),
      );
      expect((await guess(id, "right horse")).status).toBe(200);
    });
  });

  describe("at a one-time code", () => {
    const { failures, windowSeconds } = codeRule;

    test("ends after the failures of the rule, 50 at once and however the phone is spelled", async () => {
      const { phone } = await api.newIdentity();
      const spelled = `${phone.slice(0, 2)} ${phone.slice(2)}`;
      const responses = await times(50, (n) => guessCode(n % 2 === 0 ? phone : spelled));
      expect(statuses(responses)).toEqual([...repeat(failures, 400), ...repeat(50 - failures, 429)]);
      expectLimited(await guessCode(phone), windowSeconds);
      expectLimited(await guessCode(` ${phone.slice(1)}`), windowSeconds);
    });

    test("does not count while the verifier is away", async () => {
      const away = await startAuthServer("PGlite", { env: { OTP_VERIFIER_URL: "http://127.0.0.1:1" } });
      const other = authApi(away.base);
      const { phone } = await other.newIdentity();
      const form = { grant_type: "phone_otp", phone, password: "000000" };
      const responses = await oneByOne(Array(2 * failures), () => other.token(form));
      await away.stop();
      expect(statuses(responses)).toEqual(repeat(2 * failures, 503));
    });
  });

  test("by one client at many accounts at once ends at each after its first failure, and does not lock out others", async () => {
    const as = basic("scapegoat", "scapegoat-secret");
    const { id } = await someone();
    const { id: untouched } = await someone();
    const batches = Array.from({ length: clientRule.failures / 50 }, (_, batch) => batch);
    const responses = await oneByOne(batches, (batch) =>
      times(50, (n) => guessCode(`account ${batch}-${n}`, "000000", as)),
    );
    expect(statuses(responses.flat())).toEqual(repeat(clientRule.failures, 400));
    expect((await guess(id, "wrong", as)).status).toBe(400);
    expectLimited(await guess(id, "right horse", as), clientRule.windowSeconds);
    expect((await guess(id, "right horse")).status).toBe(200);
    expect((await guess(untouched, "right horse", as)).status).toBe(200);
    await api.newPair(id, as);
  });

  describe("at a client's secret", () => {
    const { failures, windowSeconds } = secretRule;
    const use = (as: string) => api.token({ grant_type: "auth", auth_id: "nobody" }, as);

    test("ends after the failures of the rule, 50 at once, and the right secret goes on working", async () => {
      const responses = await times(50, (n) => use(basic("plus", `guess ${n}`)));
      expect(statuses(responses)).toEqual([...repeat(failures, 400), ...repeat(50 - failures, 429)]);
      expectLimited(await use(basic("plus", "guess")), windowSeconds);
      const { id } = await api.newIdentity();
      // Also if it is encoded in the other way.
      for (const secret of [plus.clientSecret, encodeURIComponent(plus.clientSecret)]) {
        await times(5, () => api.newPair(id, basic("plus", secret)));
      }
      expect((await use(backoffice)).body).toMatchObject({ error: "unauthorized_client" });
    });

    test("of the internal client ends after the failures of the rule, over all operations together", async () => {
      const as = basic("internal", "guess");
      const operations = ["getIdentity", "introspectToken", "revokeToken"];
      const responses = await times(50, (n) =>
        api.call(operations[n % 3] ?? "", {
          as,
          ...(n % 3 === 0 ? { path: { id: "nobody" } } : { form: { token: "x" } }),
        }),
      );
      expect(statuses(responses)).toEqual([...repeat(failures, 401), ...repeat(50 - failures, 429)]);
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
      const samples = await oneByOne(known, async (username) => [
        await time(username),
        await time(randomUUID()),
      ]);
      const [forKnown, forUnknown] = [0, 1].map((which) => median(samples.map((pair) => pair[which] ?? 0)));
      const ratio = (forKnown ?? 0) / (forUnknown ?? 0);
      expect(ratio).toBeGreaterThan(1 / 1.6);
      expect(ratio).toBeLessThan(1.6);
    });
  });
});
