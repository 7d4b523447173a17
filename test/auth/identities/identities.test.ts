/** The rules of identities: uniqueness, partial updates, and what a change of password or a deletion ends. */
import { randomUUID } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import {
  type AuthApi,
  authApi,
  backoffice,
  internal,
  mobileApp,
  newPhone,
  spellings,
} from "../../support/auth-api.ts";
import { type AuthServer, startAuthServer } from "../../support/auth-server.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { bodyOf, expectConflict, expectInvalid, identityCalls, newEmail } from "./identity-fixture.ts";

describe.each(backends)("identities on %s", (backend) => {
  let server: AuthServer;
  let api: AuthApi;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    server = await startAuthServer(backend);
    cleanup.defer(() => server.stop());
    api = authApi(server.base);
  });

  const { create, get, update, findBy } = identityCalls(() => api);
  const remove = (id: string) => api.call("deleteIdentity", { as: internal, path: { id } });
  const setPassword = (id: string, password: string) =>
    api.call("setIdentityPassword", { as: internal, path: { id }, json: { password } });
  const removePassword = (id: string) => api.call("removeIdentityPassword", { as: internal, path: { id } });
  const logIn = (username: string, password: string) =>
    api.token({ grant_type: "password", username, password }, backoffice);

  test("what was created is answered, and found by its id and by its phone", async () => {
    const fields = { id: randomUUID(), phone: newPhone(), email: newEmail(), metadata: { locale: "en-GB" } };
    const whole = { ...fields, authenticationTypes: ["PHONE_OTP"] };
    expect(await bodyOf(create(fields))).toEqual(whole);
    expect(await bodyOf(get(fields.id))).toEqual(whole);
    const { metadata: _metadata, ...found } = fields;
    expect(await bodyOf(findBy(`?phone=${encodeURIComponent(fields.phone)}`))).toEqual(found);
  });

  test("e-mail and metadata are absent while they are not set, or set to null", async () => {
    const { id, phone } = await api.newIdentity();
    expect(await bodyOf(get(id))).toEqual({ id, phone, authenticationTypes: ["PHONE_OTP"] });
    const nulls = { id: randomUUID(), phone: newPhone(), email: null, metadata: null };
    await bodyOf(create(nulls));
    expect(await bodyOf(get(nulls.id))).toEqual({
      id: nulls.id,
      phone: nulls.phone,
      authenticationTypes: ["PHONE_OTP"],
    });
  });

  describe("an update", () => {
    test("leaves what it does not name as it was", async () => {
      const fields = { email: newEmail(), metadata: { a: 1, b: [2] } };
      const { id, phone } = await api.newIdentity(fields);
      await setPassword(id, "correct horse");
      const before = { id, phone, ...fields, authenticationTypes: ["PHONE_OTP", "PASSWORD"] };
      const changes = [{ phone: newPhone() }, { email: newEmail() }, { metadata: { c: 3 } }];
      let expected = before;
      for (const change of changes) {
        expected = { ...expected, ...change } as typeof before;
        expect((await update(id, change)).status).toBe(204);
        expect(await bodyOf(get(id))).toEqual(expected);
      }
    });

    test("clears e-mail and metadata with null", async () => {
      const { id, phone } = await api.newIdentity({ email: newEmail(), metadata: { a: 1 } });
      expect((await update(id, { email: null })).status).toBe(204);
      expect(await bodyOf(get(id))).toEqual({
        id,
        phone,
        metadata: { a: 1 },
        authenticationTypes: ["PHONE_OTP"],
      });
      expect((await update(id, { metadata: null })).status).toBe(204);
      expect(await bodyOf(get(id))).toEqual({ id, phone, authenticationTypes: ["PHONE_OTP"] });
    });

    test("cannot clear the phone", async () => {
      await expectInvalid(update((await api.newIdentity()).id, { phone: null }), "/body/phone");
    });

    test("takes the id of the path in its body, and no other", async () => {
      const { id } = await api.newIdentity();
      const { id: other } = await api.newIdentity();
      expect((await update(id, { id })).status).toBe(204);
      await expectInvalid(update(id, { id: other, phone: newPhone() }), "/body/id");
    });

    test("of nothing is refused", async () => {
      await expectInvalid(update((await api.newIdentity()).id, {}), "/body");
    });

    test("to the values that it has already is no conflict", async () => {
      const email = newEmail();
      const { id, phone } = await api.newIdentity({ email });
      expect((await update(id, { phone, email })).status).toBe(204);
    });

    test("that conflicts changes nothing", async () => {
      const { phone: taken } = await api.newIdentity();
      const { id, phone } = await api.newIdentity({ metadata: { a: 1 } });
      const change = { phone: taken, email: newEmail(), metadata: { b: 2 } };
      await expectConflict(update(id, change), "identity_phone_taken");
      const before = { id, phone, metadata: { a: 1 }, authenticationTypes: ["PHONE_OTP"] };
      expect(await bodyOf(get(id))).toEqual(before);
    });
  });

  describe("a create that conflicts", () => {
    test("says which of the three is taken and leaves nothing behind", async () => {
      const email = newEmail();
      const { id, phone } = await api.newIdentity({ email });
      const [newId, freePhone] = [randomUUID(), newPhone()];
      await expectConflict(create({ id, phone: freePhone }), "identity_id_taken");
      await expectConflict(create({ id: newId, phone }), "identity_phone_taken");
      await expectConflict(create({ id: newId, phone: freePhone, email }), "identity_email_taken");
      expect((await get(newId)).status).toBe(404);
      expect((await findBy(`?phone=${encodeURIComponent(freePhone)}`)).status).toBe(404);
    });

    const twenty = Array.from({ length: 20 }, (_, index) => index);
    const races: Record<string, (shared: string) => (index: number) => object> = {
      identity_id_taken: (id) => () => ({ id, phone: newPhone() }),
      identity_phone_taken: () => {
        const phone = newPhone();
        const all = [phone, ...spellings(phone)];
        return (index) => ({ id: randomUUID(), phone: all[index % all.length] });
      },
      identity_email_taken: (shared) => {
        const email = `${shared}@example.com`;
        const cased = (index: number) => (index % 2 === 0 ? email : email.toUpperCase());
        return (index) => ({ id: randomUUID(), phone: newPhone(), email: cased(index) });
      },
    };
    test.each(Object.keys(races))("is all but one of 20 at once, each with %s", async (code) => {
      const fields = races[code]?.(randomUUID());
      const responses = await Promise.all(twenty.map((index) => create(fields?.(index))));
      expect(responses.filter(({ status }) => status === 200)).toHaveLength(1);
      const others = responses.filter(({ status }) => status !== 200);
      expect(others.map(({ status, body }) => ({ status, body }))).toEqual(
        others.map(() => ({ status: 409, body: expect.objectContaining({ code }) })),
      );
    });

    test("is all but one of 20 updates to the same phone at once", async () => {
      const phone = newPhone();
      const identities = await Promise.all(twenty.map(() => api.newIdentity()));
      const responses = await Promise.all(identities.map(({ id }) => update(id, { phone })));
      const statuses = responses.map(({ status }) => status).sort();
      expect(statuses).toEqual([204, ...twenty.slice(1).map(() => 409)]);
    });
  });

  describe("a password", () => {
    test("is a way to authenticate while it is set", async () => {
      const { id, phone } = await api.newIdentity({ email: newEmail() });
      expect(await bodyOf(get(id))).toMatchObject({ authenticationTypes: ["PHONE_OTP"] });
      expect((await setPassword(id, "correct horse")).status).toBe(204);
      expect(await bodyOf(get(id))).toMatchObject({ authenticationTypes: ["PHONE_OTP", "PASSWORD"] });
      for (const username of [id, phone]) expect((await logIn(username, "correct horse")).status).toBe(200);
      expect((await removePassword(id)).status).toBe(204);
      expect(await bodyOf(get(id))).toMatchObject({ authenticationTypes: ["PHONE_OTP"] });
      expect(await logIn(id, "correct horse")).toMatchObject({
        status: 400,
        body: { error: "invalid_grant" },
      });
      expect((await removePassword(id)).status).toBe(204);
    });

    test("that is replaced is wrong from then on", async () => {
      const { id } = await api.newIdentity();
      await setPassword(id, "correct horse");
      await setPassword(id, "battery staple");
      expect((await logIn(id, "correct horse")).status).toBe(400);
      expect((await logIn(id, "battery staple")).status).toBe(200);
    });

    test("is never answered", async () => {
      const { id } = await api.newIdentity();
      await setPassword(id, "correct horse");
      expect((await get(id)).text).not.toMatch(/correct horse|argon2/);
      expect(server.logs()).not.toContain("correct horse");
    });

    test.each([
      ["of 8 characters", "qz7 -rmt", 204],
      ["of 8 characters outside of the basic plane", "🔑🦉".repeat(4), 204],
      ["of 128 characters", "qz7 -rmt".repeat(16), 204],
      ["of 7 characters", "1234567", 400],
      ["of 129 characters", "a".repeat(129), 400],
    ])("%s (%j) is answered with %i", async (_what, password, status) => {
      const { id } = await api.newIdentity();
      expect((await setPassword(id, password)).status).toBe(status);
      expect((await logIn(id, password)).status).toBe(status === 204 ? 200 : 400);
    });

    test("is the same in composed and decomposed form", async () => {
      const { id } = await api.newIdentity();
      await setPassword(id, "c\u0061\u0301f\u00e9 noir");
      expect((await logIn(id, "c\u00e1fe\u0301 noir")).status).toBe(200);
    });

    test.each(["set", "replaced", "removed"])("that is %s ends the tokens that there were", async (how) => {
      const { id } = await api.newIdentity();
      if (how !== "set") await setPassword(id, "correct horse");
      const pair = await api.newPair(id);
      const refreshed = (await api.refresh((await api.newPair(id)).refresh_token)).body;
      const change = how === "removed" ? removePassword(id) : setPassword(id, "battery staple");
      expect((await change).status).toBe(204);
      expect(await api.introspect(pair.access_token)).toEqual({ active: false });
      expect(refreshed).toHaveProperty("access_token");
      expect((await api.refresh(pair.refresh_token)).body).toMatchObject({ error: "invalid_grant" });
      expect(await api.introspect((await api.newPair(id)).access_token)).toMatchObject({ active: true });
    });
  });

  describe("a deletion", () => {
    test("ends every token of the identity, and only of this one", async () => {
      const { id } = await api.newIdentity();
      const { id: other } = await api.newIdentity();
      const pairs = await Promise.all([api.newPair(id), api.newPair(id, mobileApp)]);
      const kept = await api.newPair(other);
      expect((await remove(id)).status).toBe(204);
      for (const { access_token, refresh_token } of pairs) {
        expect(await api.introspect(access_token)).toEqual({ active: false });
        expect((await api.refresh(refresh_token)).body).toMatchObject({ error: "invalid_grant" });
      }
      expect(await api.introspect(kept.access_token)).toMatchObject({ active: true });
    });

    test("leaves nothing to find, and no identity to issue tokens to", async () => {
      const { id, phone } = await api.newIdentity();
      await setPassword(id, "correct horse");
      expect((await remove(id)).status).toBe(204);
      const responses = [
        get(id),
        findBy(`?phone=${encodeURIComponent(phone)}`),
        update(id, { metadata: {} }),
        setPassword(id, "correct horse"),
        removePassword(id),
        remove(id),
      ];
      for (const response of responses) {
        expect(await response).toMatchObject({ status: 404, body: { code: "identity_not_found" } });
      }
      expect((await api.token({ grant_type: "auth", auth_id: id })).body).toMatchObject({
        error: "invalid_grant",
      });
      expect((await logIn(id, "correct horse")).body).toMatchObject({ error: "invalid_grant" });
    });

    test("frees id, phone and e-mail; the identity that gets them has neither the tokens nor the password", async () => {
      const email = newEmail();
      const { id, phone } = await api.newIdentity({ email });
      await setPassword(id, "correct horse");
      const pair = await api.newPair(id);
      await remove(id);
      await bodyOf(create({ id, phone, email }));
      expect(await bodyOf(get(id))).toMatchObject({ authenticationTypes: ["PHONE_OTP"] });
      expect(await api.introspect(pair.access_token)).toEqual({ active: false });
      expect((await api.refresh(pair.refresh_token)).status).toBe(400);
      expect((await logIn(id, "correct horse")).status).toBe(400);
    });

    test("happens once, however many ask for it at once", async () => {
      const { id } = await api.newIdentity();
      const responses = await Promise.all(Array.from({ length: 20 }, () => remove(id)));
      const statuses = responses.map(({ status }) => status).sort();
      expect(statuses).toEqual([204, ...Array.from({ length: 19 }, () => 404)]);
    });
  });
});
