/** Phone numbers as they are pasted, and those that a numbering plan no longer has. */
import { randomUUID } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import { type AuthApi, authApi, backoffice, internal, newPhone } from "../../support/auth-api.ts";
import { type AuthServer, startAuthServer } from "../../support/auth-server.ts";
import { type AuthStore, createAuthStore } from "../../support/auth-store.ts";
import { otpVerifier } from "../../support/otp.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { expectConflict, expectInvalid, identityCalls } from "./identity-fixture.ts";

const wide = (text: string) =>
  text.replace(/[+\d]/g, (ascii) => String.fromCharCode(ascii.charCodeAt(0) + 0xfee0));

const pasted: Record<string, (phone: string) => string> = {
  "after a space": (phone) => ` ${phone}`,
  "after two spaces, without the plus sign": (phone) => `  ${phone.slice(1)}`,
  "between tabs": (phone) => `\t${phone}\t`,
  "after a no-break space": (phone) => `\u00a0${phone}`,
  "between line breaks": (phone) => `\r\n${phone}\n`,
  "in an embedding from left to right": (phone) => `\u202a${phone}\u202c`,
  "in an override from left to right": (phone) => `\u202d${phone}\u202c`,
  "in an isolate from left to right": (phone) => `\u2066${phone}\u2069`,
  "after a left-to-right mark": (phone) => `\u200e${phone}`,
  "after a byte order mark": (phone) => `\ufeff${phone}`,
  "with a wide plus sign": (phone) => phone.replace("+", "\uff0b"),
  "with wide digits": wide,
  "with wide digits, without the plus sign": (phone) => wide(phone.slice(1)),
  "with narrow no-break spaces in it": (phone) => phone.replace(/(\d{3})/g, "$1\u202f"),
};

describe.each(backends)("a phone number, on %s", (backend) => {
  let store: AuthStore;
  let server: AuthServer;
  let api: AuthApi;
  /** An identity whose number its country no longer has. */
  const old = { id: randomUUID(), phone: "+22507123456" };
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    store = await createAuthStore(backend);
    cleanup.defer(() => store.drop());
    const first = await startAuthServer(backend, { env: store.env });
    await authApi(first.base).newIdentity({ id: old.id, email: "old@example.com" });
    await first.stop();
    await store.read((query) =>
      query(`update auth.identities set phone = '${old.phone}' where id = '${old.id}'`),
    );
    server = await startAuthServer(backend, { env: store.env });
    cleanup.defer(() => server.stop());
    api = authApi(server.base);
  });

  const { create, get, update, findBy } = identityCalls(() => api);
  const find = (phone: string) => findBy(`?phone=${encodeURIComponent(phone)}`);

  test.each(Object.keys(pasted))("%s is the same number, in whatever operation", async (name) => {
    const phone = newPhone();
    const text = pasted[name]?.(phone) ?? "";
    const otp = otpVerifier(server.origin);
    const { id } = await api.newIdentity({ phone: text });
    const { id: other } = await api.newIdentity();
    const found = [await get(id), await find(text)].map(({ body }) => body);
    expect(found).toEqual(found.map(() => expect.objectContaining({ id, phone })));
    await expectConflict(create({ id: randomUUID(), phone: text }), "identity_phone_taken");
    await expectConflict(update(other, { phone: text }), "identity_phone_taken");
    const password = "some long words here 55";
    await api.call("setIdentityPassword", { as: internal, path: { id }, json: { password } });
    const byPassword = { grant_type: "password", username: text, password };
    expect((await api.token(byPassword, backoffice)).status).toBe(200);
    const byCode = { grant_type: "phone_otp", phone: text, password: await otp.send(phone) };
    expect((await api.token(byCode)).status).toBe(200);
    const otp_verification_token = await otp.prove(phone);
    const byProof = { grant_type: "phone_otp_token", phone: text, otp_verification_token };
    expect((await api.token(byProof)).status).toBe(200);
  });

  test("that its country no longer has is found, and may be kept, but is not taken anew", async () => {
    const { id, phone } = old;
    for (const text of [phone, `00${phone.slice(1)}`, "\u202a+225 07 12 34 56\u202c"])
      expect(await find(text)).toMatchObject({ status: 200, body: { id, phone } });
    const password = "some long words here 55";
    await api.call("setIdentityPassword", { as: internal, path: { id }, json: { password } });
    const form = { grant_type: "password", username: phone, password };
    expect((await api.token(form, backoffice)).status).toBe(200);
    expect((await update(id, { phone, email: "new@example.com" })).status).toBe(204);
    expect((await get(id)).body).toMatchObject({ phone, email: "new@example.com" });
    const { id: other } = await api.newIdentity();
    await expectInvalid(update(other, { phone }), "/body/phone");
    await expectInvalid(update(id, { phone: "+22507123457" }), "/body/phone");
    await expectInvalid(create({ id: randomUUID(), phone }), "/body/phone");
    expect((await update(id, { phone: newPhone() })).status).toBe(204);
    await expectInvalid(update(id, { phone }), "/body/phone");
  });
});
