/** Counts of guesses end with what was guessed: a password, a phone, or an identity. */
import { randomInt } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import { guessingRules } from "../../../src/auth/limits/guessing.ts";
import { type AuthApi, authApi, internal, newPhone } from "../../support/auth-api.ts";
import { type AuthServer, startAuthServer } from "../../support/auth-server.ts";
import { otpVerifier } from "../../support/otp.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { guessesAt, oneByOne } from "./guessing-fixture.ts";

const { failures } = guessingRules.password;

describe.each(backends)("counted on %s, guesses", (backend) => {
  let server: AuthServer;
  let api: AuthApi;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    server = await startAuthServer(backend);
    cleanup.defer(() => server.stop());
    api = authApi(server.base);
  });

  const { guess, guessCode, someone } = guessesAt(() => api);
  const as = internal;
  const setPassword = async (id: string, password: string) =>
    (await api.call("setIdentityPassword", { as, path: { id }, json: { password } })).status;
  const update = async (id: string, json: object) =>
    (await api.call("updateIdentity", { as, path: { id }, json })).status;

  /** Somebody whose passwords and codes are refused, whatever they are. */
  async function someoneLocked() {
    const { id, phone } = await someone({ email: `u${randomInt(2 ** 40)}@example.com` });
    await oneByOne(Array(failures), () => guess(id));
    await oneByOne(Array(failures), () => guessCode(phone));
    expect([(await guess(id, "right horse")).status, (await guessCode(phone)).status]).toEqual([429, 429]);
    return { id, phone };
  }

  test("at a password say nothing of the next one, which has as many of its own; codes keep their count", async () => {
    const { id, phone } = await someoneLocked();
    expect(await setPassword(id, "another horse")).toBe(204);
    expect((await guess(phone, "another horse")).status).toBe(200);
    await oneByOne(Array(failures), async () => expect((await guess(id)).status).toBe(400));
    expect([(await guess(id, "another horse")).status, (await guessCode(phone)).status]).toEqual([429, 429]);
  });

  test("at a password say nothing of one that is set after it was removed, be it the same", async () => {
    const { id } = await someoneLocked();
    await api.call("removeIdentityPassword", { as, path: { id } });
    expect(await setPassword(id, "right horse")).toBe(204);
    expect((await guess(id, "right horse")).status).toBe(200);
  });

  test("at an identity say nothing of a new one with its id, phone and password", async () => {
    const { id, phone } = await someoneLocked();
    await api.call("deleteIdentity", { as, path: { id } });
    await api.newIdentity({ id, phone });
    expect(await setPassword(id, "right horse")).toBe(204);
    const code = await otpVerifier(server.origin).send(phone);
    expect([(await guess(id, "right horse")).status, (await guessCode(phone, code)).status]).toEqual([
      200, 200,
    ]);
  });

  test("at codes say nothing of those of another phone, and are remembered when the phone comes back", async () => {
    const { id, phone } = await someoneLocked();
    const other = newPhone();
    expect(await update(id, { phone: other, email: null })).toBe(204);
    expect([(await guess(id, "right horse")).status, (await guessCode(other)).status]).toEqual([429, 400]);
    expect(await update(id, { phone })).toBe(204);
    expect((await guessCode(phone)).status).toBe(429);
  });

  test("at a phone stay behind when it moves to another identity", async () => {
    const { id, phone } = await someoneLocked();
    const heir = await someone();
    expect([await update(id, { phone: newPhone() }), await update(heir.id, { phone })]).toEqual([204, 204]);
    expect([(await guess(phone, "right horse")).status, (await guessCode(phone)).status]).toEqual([200, 400]);
    expect((await guess(id, "right horse")).status).toBe(429);
  });

  test("at a password that was replaced meanwhile count for the one that they were judged by", async () => {
    const { id } = await someone();
    const [guessed] = await Promise.all([
      oneByOne(Array(failures), () => guess(id)),
      setPassword(id, "another horse"),
    ]);
    expect(guessed.map(({ status }) => status)).toEqual(Array(failures).fill(400));
    expect((await guess(id, "another horse")).status).toBe(200);
  });
});
