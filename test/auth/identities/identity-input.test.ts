/** Hostile and careless input to the identity operations: what is refused, where, and what is stored unchanged. */
import { randomUUID } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import { type Answer, type AuthApi, authApi, internal, newPhone } from "../../support/auth-api.ts";
import { type AuthServer, startAuthServer } from "../../support/auth-server.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

/** JSON text of an object nested in itself, `levels` objects in all. */
function nested(levels: number): string {
  return `${'{"a":'.repeat(levels - 1)}{}${"}".repeat(levels - 1)}`;
}

/** An object that is this many bytes as JSON. */
function ofBytes(bytes: number, character = "a"): object {
  const room = bytes - Buffer.byteLength('{"text":""}');
  const count = Math.floor(room / Buffer.byteLength(character));
  return { text: character.repeat(count) + "a".repeat(room - count * Buffer.byteLength(character)) };
}

const roundTrips: Record<string, object> = {
  empty: {},
  "every kind of value": {
    text: "",
    yes: true,
    no: false,
    none: null,
    list: [1, [], {}, "a"],
    one: { two: 3 },
  },
  unicode: { "Ключ 鍵 🔑": "значение \u{1F469}\u200D\u{1F680} \u0301 \u2028\uFEFF\uFFFD", "": "no name" },
  "control characters and escapes": { "a\tb\n": '\u0001\u001f\u007f"\\/\r\n' },
  "names of Object.prototype": { constructor: { prototype: 1 }, toString: "a", hasOwnProperty: null },
  "SQL and paths": { "'; drop table auth.identities; --": "../../etc/passwd $HOME {{7*7}}" },
  "big and small numbers": {
    integer: Number.MAX_SAFE_INTEGER,
    negative: Number.MIN_SAFE_INTEGER,
    big: 1e308,
    small: 5e-324,
    long: 0.1 + 0.2,
    twoTo64: 2 ** 64,
  },
  "16 KiB": ofBytes(16_384),
  "16 KiB of three-byte characters": ofBytes(16_384, "鍵"),
  "many members": Object.fromEntries(Array.from({ length: 1000 }, (_, index) => [`k${index}`, index])),
};

const ids = {
  valid: [
    ...[
      "a",
      "AZaz09._~:-",
      "...",
      "a..b",
      "find-by-phone-",
      "-",
      "a".repeat(128),
      " ",
      "a/b",
      "/",
      "//",
      "../..",
    ],
    ...["q83vEjRWeJC/+w==", "a%20b", "%", "%2F", "a?b=c#d", "a\\b", "a+b", "+12025550123", "ada@example.com"],
    ...["a/password", "'\"`<>{}|^[]!$&()*,;", "find-by-phone/", "Find-By-Phone", "a/".repeat(64)],
  ],
  invalid: ["", ".", "..", "find-by-phone", "a\u007f", "ä", "a\n", "\t", "🔑", "a".repeat(129)],
};

const brokenJson = {
  "nothing at all": "",
  "white space": "  \n",
  "half an object": '{"id":"a",',
  "a trailing comma": '{"id":"a",}',
  "single quotes": "{'id':'a'}",
  "a bare word": "hello",
  "two values": "{} {}",
  NaN: '{"id":NaN}',
  "a control character in a string": '{"id":"a\u0001"}',
  "a form": "id=a&phone=%2B12025550123",
};

describe.each(backends)("input to the identity operations on %s", (backend) => {
  let server: AuthServer;
  let api: AuthApi;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    server = await startAuthServer(backend);
    cleanup.defer(() => server.stop());
    api = authApi(server.base);
  });

  const json = { "content-type": "application/json" };
  const create = (fields: unknown) => api.call("createIdentity", { as: internal, json: fields });
  const createRaw = (raw: string | Uint8Array) =>
    api.call("createIdentity", { as: internal, raw, headers: json });
  const updateRaw = (id: string, raw: string) =>
    api.call("updateIdentity", { as: internal, path: { id }, raw, headers: json });
  const get = (id: string) => api.call("getIdentity", { as: internal, path: { id } });

  async function expectInvalid(response: Promise<Answer>, pointer: string, message?: string): Promise<void> {
    const { status, body, text } = await response;
    expect(status, text).toBe(400);
    expect(body).toMatchObject({ code: "invalid_request" });
    expect(body).toHaveProperty("errors.0.pointer", pointer);
    if (message !== undefined) expect(body).toHaveProperty("errors.0.message", message);
  }

  async function metadataOf(id: string): Promise<unknown> {
    const { body } = await get(id);
    return typeof body === "object" && body !== null && "metadata" in body ? body.metadata : undefined;
  }

  /** The text of a create request with this JSON text for its metadata. */
  const withMetadata = (id: string, text: string) =>
    `{"id":"${id}","phone":"${newPhone()}","metadata":${text}}`;

  describe("metadata", () => {
    test.each(Object.keys(roundTrips))("comes back as it was sent: %s", async (name) => {
      const metadata = roundTrips[name];
      const id = randomUUID();
      const { status, body } = await create({ id, phone: newPhone(), metadata });
      expect({ status, body }).toMatchObject({ status: 200, body: { metadata } });
      expect(await metadataOf(id)).toEqual(metadata);
      const { id: other } = await api.newIdentity({ metadata: { before: true } });
      expect((await updateRaw(other, JSON.stringify({ metadata }))).status).toBe(204);
      expect(await metadataOf(other)).toEqual(metadata);
    });

    test("keeps a member named __proto__ and gives it no power", async () => {
      const id = randomUUID();
      const text = '{"__proto__":{"polluted":"yes"},"a":{"__proto__":null}}';
      expect((await createRaw(withMetadata(id, text))).status).toBe(200);
      const { text: stored } = await get(id);
      expect(stored).toContain('"__proto__":{"polluted":"yes"}');
      expect(stored).toContain('"a":{"__proto__":null}');
      expect(Object.keys(Object.prototype)).toEqual([]);
      const { id: other } = await api.newIdentity();
      expect((await get(other)).text).not.toContain("polluted");
    });

    test.each(["12345678901234567891234", "9007199254740993", "0.1234567890123456789"])(
      "of the number %s, of which digits would be lost, is refused where it stands",
      async (number) => {
        const message = "is a number with more digits than are kept; send it as a string";
        const create = createRaw(withMetadata(randomUUID(), `{"n":[1,${number}]}`));
        await expectInvalid(create, "/body/metadata/n/1", message);
        const { id } = await api.newIdentity({ metadata: { before: true } });
        await expectInvalid(updateRaw(id, `{"metadata":{"n":${number}}}`), "/body/metadata/n", message);
        expect(await metadataOf(id)).toEqual({ before: true });
      },
    );

    test("of a number that is out of range is refused where it stands", () =>
      expectInvalid(
        createRaw(withMetadata(randomUUID(), '{"a":[1,1e999]}')),
        "/body/metadata/a/1",
        "is a number out of range",
      ));

    test("of one byte more than 16 KiB is refused, whatever its characters", async () => {
      for (const metadata of [ofBytes(16_385), ofBytes(16_385, "鍵")]) {
        await expectInvalid(create({ id: randomUUID(), phone: newPhone(), metadata }), "/body/metadata");
      }
      const { id } = await api.newIdentity({ metadata: { before: true } });
      await expectInvalid(updateRaw(id, JSON.stringify({ metadata: ofBytes(16_385) })), "/body/metadata");
      expect(await metadataOf(id)).toEqual({ before: true });
    });

    test("of 32 levels is kept and of one more refused", async () => {
      const id = randomUUID();
      expect((await createRaw(withMetadata(id, nested(32)))).status).toBe(200);
      expect(await metadataOf(id)).toEqual(JSON.parse(nested(32)));
      const pointer = `/body/metadata${"/a".repeat(32)}`;
      const message = "is nested deeper than 32 levels";
      await expectInvalid(createRaw(withMetadata(randomUUID(), nested(33))), pointer, message);
    });

    test("10,000 levels deep is refused, of arrays and of objects", async () => {
      const arrays = `${"[".repeat(10_000)}${"]".repeat(10_000)}`;
      expect((await createRaw(withMetadata(randomUUID(), `{"a":${arrays}}`))).status).toBe(400);
      expect((await createRaw(withMetadata(randomUUID(), nested(10_000)))).status).toBe(400);
      expect((await createRaw(arrays)).status).toBe(400);
    });

    test.each(["[]", '"a"', "1", "true"])("%s is refused: it must be an object", async (text) => {
      await expectInvalid(createRaw(withMetadata(randomUUID(), text)), "/body/metadata");
      const { id } = await api.newIdentity();
      await expectInvalid(updateRaw(id, `{"metadata":${text}}`), "/body/metadata");
    });
  });

  describe("text that no database can hold is refused where it stands", () => {
    const places: Record<string, (text: string) => string> = {
      "/body/id": (text) => `{"id":"a${text}","phone":"+12025550123"}`,
      "/body/phone": (text) => `{"id":"a","phone":"+1202555${text}0123"}`,
      "/body/email": (text) => `{"id":"a","phone":"+12025550123","email":"a${text}@example.com"}`,
      "/body/metadata/a/0": (text) => `{"id":"a","phone":"+12025550123","metadata":{"a":["${text}"]}}`,
      "/body/metadata": (text) => `{"id":"a","phone":"+12025550123","metadata":{"a${text}":1}}`,
    };
    describe.each(Object.keys(places))("%s", (pointer) => {
      test.each(["\\u0000", "\\ud800", "\\udc00", "\\udc00\\ud800"])("%s", (written) =>
        expectInvalid(createRaw(places[pointer]?.(written) ?? ""), pointer),
      );
    });

    test.each(["%00", "%ED%A0%80", "%FF", "%C0%AF"])("in a query: %s", async (bytes) => {
      const query = `?phone=%2B12025550123${bytes}`;
      expect((await api.call("findIdentityByPhone", { as: internal, query })).status).toBe(400);
    });

    test.each(["a%00", "%ED%A0%80", "%FF", "a%FFb", "%", "%zz", "%7F", "%C3%A4"])(
      "in a path: %s",
      async (id) => {
        const response = await fetch(`${server.base}/v1/identities/${id}`, {
          headers: { authorization: internal },
        });
        const text = await response.text();
        api.contract.check("getIdentity", response, text);
        expect(response.status).toBe(400);
        expect(JSON.parse(text)).toHaveProperty("errors.0.pointer", "/path/id");
      },
    );

    test("bytes that are not UTF-8", async () => {
      const bytes = Buffer.from(withMetadata(randomUUID(), '{"a":"?"}'));
      bytes[bytes.indexOf("?")] = 0xff;
      await expectInvalid(createRaw(bytes), "/body", "is not UTF-8");
    });
  });

  describe("an id", () => {
    test.each(ids.valid)("%j is taken, in the body and in the path", async (id) => {
      expect((await create({ id, phone: newPhone() })).status).toBe(200);
      expect(await get(id)).toMatchObject({ status: 200, body: { id } });
      expect((await updateRaw(id, JSON.stringify({ id }))).status).toBe(204);
      const { access_token } = await api.newPair(id);
      expect(await api.introspect(access_token)).toMatchObject({ sub: id, userInfo: { userId: id } });
      expect((await api.call("deleteIdentity", { as: internal, path: { id } })).status).toBe(204);
      expect((await get(id)).status).toBe(404);
    });

    test.each(ids.invalid)("%j is refused", (id) =>
      expectInvalid(create({ id, phone: newPhone() }), "/body/id"),
    );

    test.each([1, null, true, ["a"], { a: 1 }])("%j is refused: it must be text", (id) =>
      expectInvalid(create({ id, phone: newPhone() }), "/body/id"),
    );
  });

  test("a phone longer than E.164 allows is refused although its country has such numbers, and not stored", async () => {
    const phone = "+49123456789012345";
    const fields = { id: randomUUID(), phone };
    await expectInvalid(create(fields), "/body/phone");
    expect((await get(fields.id)).status).toBe(404);
    const { id, phone: own } = await api.newIdentity();
    await expectInvalid(updateRaw(id, JSON.stringify({ phone })), "/body/phone");
    expect((await get(id)).body).toMatchObject({ phone: own });
    const query = `?phone=${encodeURIComponent(phone)}`;
    expect((await api.call("findIdentityByPhone", { as: internal, query })).status).toBe(404);
  });

  describe("a body that is not JSON is refused with a pointer to the body", () => {
    test.each(Object.entries(brokenJson))("%s", (_name, raw) => expectInvalid(createRaw(raw), "/body"));

    test.each(["null", "[]", '"text"', "1", "[{}]"])("nor an object: %s", (raw) =>
      expectInvalid(createRaw(raw), "/body"),
    );
  });

  test("a member that is given twice is refused: two readers could read two things", () =>
    expectInvalid(
      createRaw(`{"id":"${randomUUID()}","phone":"${newPhone()}","phone":"${newPhone()}"}`),
      "/body",
    ));

  describe("members that a caller may not set are refused, and nothing is stored", () => {
    const members = {
      authenticationTypes: ["PASSWORD"],
      passwordHash: "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAA$AAAA",
      password_hash: null,
      password: "correct horse",
      createdAt: "2020-01-01T00:00:00Z",
      disabledAt: null,
      Id: "a",
      "": 1,
      "a/b~c": 1,
      __proto__x: {},
    };
    test.each(Object.entries(members))("%j", async (name, value) => {
      const fields = { id: randomUUID(), phone: newPhone(), [name]: value };
      const pointer = `/body/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`;
      await expectInvalid(create(fields), pointer, "is not a member of this object");
      expect((await get(fields.id)).status).toBe(404);
      const { id } = await api.newIdentity();
      await expectInvalid(updateRaw(id, JSON.stringify({ email: null, [name]: value })), pointer);
    });

    test("__proto__", async () => {
      const id = randomUUID();
      const raw = `{"id":"${id}","__proto__":{"phone":"${newPhone()}"}}`;
      expect((await createRaw(raw)).status).toBe(400);
      expect((await get(id)).status).toBe(404);
    });
  });

  test("every place that is wrong is named", async () => {
    const { body } = await create({ id: "kein Schlüssel", email: "x", metadata: [], more: 1 });
    const pointers = (body as { errors: { pointer: string }[] }).errors.map(({ pointer }) => pointer);
    const expected = ["/body/email", "/body/id", "/body/metadata", "/body/more", "/body/phone"];
    expect([...new Set(pointers)].sort()).toEqual(expected);
  });
});
