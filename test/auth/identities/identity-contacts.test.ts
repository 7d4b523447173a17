/** The phone numbers and e-mail addresses of identities: what is one, in which spellings, and how it is found. */
import { randomUUID } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import { type AuthApi, authApi, newPhone, spellings } from "../../support/auth-api.ts";
import { type AuthServer, startAuthServer } from "../../support/auth-server.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { bodyOf, expectConflict, expectInvalid, identityCalls, newEmail } from "./identity-fixture.ts";

const notPhones = [
  "02025550123",
  "00012025550123",
  "+0012025550123",
  "1202",
  "++12025550123",
  "+12025550123\n+12025550124",
  "+1202555\n0123",
  "+12025550123\u00b2",
  "\uff0b+12025550123",
  "+1202",
  "+120255501234567",
  "+0123456789",
  "+1202555012a",
  "tel:+12025550123",
  "+1 202 555 0123 ext. 5",
  "call +12025550123",
];

describe.each(backends)("phones and e-mail addresses on %s", (backend) => {
  let server: AuthServer;
  let api: AuthApi;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    server = await startAuthServer(backend);
    cleanup.defer(() => server.stop());
    api = authApi(server.base);
  });

  const { create, get, update, findBy } = identityCalls(() => api);

  describe("phone", () => {
    test("is stored in canonical form, however it is spelled", async () => {
      for (const index of spellings(newPhone()).keys()) {
        const phone = newPhone();
        const fields = { id: randomUUID(), phone: spellings(phone)[index] };
        expect(await bodyOf(create(fields)), fields.phone).toMatchObject({ phone });
      }
    });

    test("is taken in every spelling once it is taken in one", async () => {
      const { phone } = await api.newIdentity();
      const { id } = await api.newIdentity();
      for (const spelling of [phone, ...spellings(phone)]) {
        await expectConflict(create({ id: randomUUID(), phone: spelling }), "identity_phone_taken");
        await expectConflict(update(id, { phone: spelling }), "identity_phone_taken");
      }
    });

    test("is found in every spelling, also where the plus sign was not encoded", async () => {
      const { id, phone } = await api.newIdentity();
      for (const spelling of [phone, ...spellings(phone)]) {
        const query = `?phone=${encodeURIComponent(spelling)}`;
        expect(await bodyOf(findBy(query)), spelling).toMatchObject({ id, phone });
      }
      expect(await bodyOf(findBy(`?phone=${phone}`))).toMatchObject({ id });
    });

    test("that no identity has is not found", async () => {
      const response = await findBy(`?phone=${encodeURIComponent(newPhone())}`);
      expect(response).toMatchObject({ status: 404, body: { code: "identity_not_found" } });
    });

    test.each(notPhones)("%j is not one, wherever it is given", async (phone) => {
      const { id } = await api.newIdentity();
      await expectInvalid(create({ id: randomUUID(), phone }), "/body/phone");
      await expectInvalid(update(id, { phone }), "/body/phone");
      const query = `?phone=${encodeURIComponent(phone)}`;
      expect(await findBy(query)).toMatchObject({ status: 404, body: { code: "identity_not_found" } });
    });

    test.each(["", "a", "12", "鍵", "a".repeat(4000)])("%j in a query is nobody's", async (text) => {
      const response = await findBy(`?phone=${encodeURIComponent(text)}`);
      expect(response).toMatchObject({ status: 404, body: { code: "identity_not_found" } });
    });

    test("is required in a query", async () => {
      await expectInvalid(findBy(""), "/query/phone");
      await expectInvalid(findBy("?phone=%FF"), "/query");
    });

    test("given twice in a query is refused", async () => {
      const { phone } = await api.newIdentity();
      const encoded = encodeURIComponent(phone);
      await expectInvalid(findBy(`?phone=${encoded}&phone=${encoded}`), "/query/phone");
    });
  });

  describe("e-mail", () => {
    test("is kept as it was written and taken in every case", async () => {
      const email = `Ada.${randomUUID()}@Example.com`;
      const { id } = await api.newIdentity({ email });
      const { id: other } = await api.newIdentity();
      expect(await bodyOf(get(id))).toMatchObject({ email });
      for (const spelling of [email, email.toLowerCase(), email.toUpperCase()]) {
        const fields = { id: randomUUID(), phone: newPhone(), email: spelling };
        await expectConflict(create(fields), "identity_email_taken");
        await expectConflict(update(other, { email: spelling }), "identity_email_taken");
      }
    });

    test("can change its case, and is free again once it is cleared", async () => {
      const email = newEmail();
      const { id } = await api.newIdentity({ email });
      expect((await update(id, { email: email.toUpperCase() })).status).toBe(204);
      expect(await bodyOf(get(id))).toMatchObject({ email: email.toUpperCase() });
      expect((await update(id, { email: null })).status).toBe(204);
      await api.newIdentity({ email });
    });

    test.each(["", "ada", "ada@", "@example.com", "a b@example.com", `${"a".repeat(250)}@example.com`])(
      "%j is not one",
      (email) => expectInvalid(create({ id: randomUUID(), phone: newPhone(), email }), "/body/email"),
    );
  });
});
