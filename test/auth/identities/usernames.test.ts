/** What a username names: a phone number, an e-mail address or an id, where an id may look like each of the others. */
import { randomUUID } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import { type AuthApi, authApi, backoffice, internal, mobileApp, newPhone } from "../../support/auth-api.ts";
import { startAuthServer } from "../../support/auth-server.ts";
import { otpVerifier } from "../../support/otp.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

describe.each(backends)("a username, on %s", (backend) => {
  let api: AuthApi;
  let otp: ReturnType<typeof otpVerifier>;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    const server = await startAuthServer(backend);
    cleanup.defer(() => server.stop());
    api = authApi(server.base);
    otp = otpVerifier(server.origin);
  });

  /** An identity whose password is its own. */
  async function newUser(fields: { id?: string; phone?: string; email?: string }) {
    const { id, phone } = await api.newIdentity(fields);
    const password = `password of ${randomUUID()}`;
    await api.call("setIdentityPassword", { as: internal, path: { id }, json: { password } });
    return { id, phone, password };
  }
  /** A log-in that is refused, as passwords are checked more slowly than they come, says nothing of the username. */
  async function logIn(username: string, password: string): Promise<number> {
    const { status } = await api.token({ grant_type: "password", username, password }, backoffice);
    return status === 503 ? logIn(username, password) : status;
  }

  test("is a phone number in every spelling", async () => {
    const { phone, password } = await newUser({});
    const digits = phone.slice(1);
    for (const username of [phone, digits, `00${digits}`, ` ${digits}`, `00 ${digits}`]) {
      expect(await logIn(username, password), username).toBe(200);
    }
  });

  test("is a phone number before it is an id", async () => {
    const phone = newPhone();
    const byId = await newUser({ id: phone.slice(1) });
    expect(await logIn(byId.id, byId.password)).toBe(200);
    const byPhone = await newUser({ phone });
    expect(await logIn(byId.id, byPhone.password)).toBe(200);
    expect(await logIn(byId.id, byId.password)).toBe(400);
    // auth_id is never anything but an id.
    const { access_token } = await api.newPair(byId.id);
    expect(await api.introspect(access_token)).toMatchObject({ sub: byId.id });
  });

  test("is an e-mail address before it is an id", async () => {
    const email = `${randomUUID()}@example.com`;
    const byId = await newUser({ id: email });
    expect(await logIn(email, byId.password)).toBe(200);
    const byEmail = await newUser({ email: email.toUpperCase() });
    expect(await logIn(email, byEmail.password)).toBe(200);
    expect(await logIn(email, byId.password)).toBe(400);
  });

  test("names its own identity where many are asked for at once", async () => {
    const emails = Array.from({ length: 2 }, () => `${randomUUID()}@Example.com`);
    const users = await Promise.all(emails.map(async (email) => ({ email, ...(await newUser({ email })) })));
    const attempts = users.flatMap(({ id, phone, email, password }, index) => {
      const other = users[(index + 1) % users.length]?.password ?? "";
      return [id, phone.slice(1), email.toLowerCase()].flatMap((username) => [
        { username, password, status: 200 },
        { username, password: other, status: 400 },
      ]);
    });
    const statuses = await Promise.all(attempts.map(({ username, password }) => logIn(username, password)));
    expect(statuses).toEqual(attempts.map(({ status }) => status));
  });

  test.each(["null", "NULL", "undefined"])(
    "%j is nobody, beside a user without an e-mail address",
    async (name) => {
      const { phone, password } = await newUser({});
      const lookUp = () =>
        api.call("findIdentityByPhone", { as: internal, query: `?phone=${encodeURIComponent(phone)}` });
      for (let guess = 0; guess < 9; guess += 1) {
        const [status, ...found] = await Promise.all([
          logIn(name, password),
          ...Array.from({ length: 8 }, lookUp),
        ]);
        expect(status).toBe(400);
        expect(found.map((response) => response.status)).toEqual(found.map(() => 200));
      }
      expect(await logIn(phone, password)).toBe(200);
    },
  );

  test("is an id of any characters", async () => {
    const { id, password } = await newUser({ id: `${randomUUID()}/+ =\\%2F'"` });
    expect(await logIn(id, password)).toBe(200);
    expect(await logIn(id.toUpperCase(), password)).toBe(400);
  });

  test("the grants that check a phone take every spelling as well", async () => {
    const { phone } = await api.newIdentity();
    const digits = phone.slice(1);
    for (const spelling of [digits, `00${digits}`]) {
      const byProof = {
        grant_type: "phone_otp_token",
        phone: spelling,
        otp_verification_token: await otp.prove(phone),
      };
      expect((await api.token(byProof, mobileApp)).status).toBe(200);
      const byCode = { grant_type: "phone_otp", phone: spelling, password: await otp.send(phone) };
      expect((await api.token(byCode, mobileApp)).status).toBe(200);
    }
  });

  test("the grants that check a phone take no id that looks like it", async () => {
    const phone = newPhone();
    const { id } = await api.newIdentity({ id: phone });
    const byProof = async () => ({
      grant_type: "phone_otp_token",
      phone,
      otp_verification_token: await otp.prove(phone),
    });
    const byCode = async () => ({ grant_type: "phone_otp", phone, password: await otp.send(phone) });
    expect((await api.token(await byProof(), mobileApp)).status).toBe(400);
    expect((await api.token(await byCode(), mobileApp)).status).toBe(400);
    const owner = await api.newIdentity({ phone });
    for (const grant of [byProof, byCode]) {
      const { status, text } = await api.token(await grant(), mobileApp);
      expect(status, text).toBe(200);
      expect(await api.introspect(JSON.parse(text).access_token)).toMatchObject({ sub: owner.id });
    }
    expect(owner.id).not.toBe(id);
  });
});
