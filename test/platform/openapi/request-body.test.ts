/** Requests that the binding of a document accepts or refuses, and the pointers of its errors. */
import { connect } from "node:net";
import { setTimeout } from "node:timers/promises";
import { beforeAll, describe, expect, it } from "vitest";
import { exchange } from "../../support/http-app.ts";
import { type SampleApi, startSampleApi } from "../../support/sample-api.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

let api: SampleApi;
const cleanup = suiteCleanup();
beforeAll(async () => {
  api = await startSampleApi();
  cleanup.defer(() => api.close());
});

async function call(path: string, init?: RequestInit) {
  const response = await fetch(api.base + path, init);
  const text = await response.text();
  return { status: response.status, body: text === "" ? undefined : JSON.parse(text), text };
}
function send(
  path: string,
  body: string | Uint8Array<ArrayBuffer>,
  type = "application/json",
  method = "POST",
) {
  return call(path, { method, body, headers: { "content-type": type } });
}
const refused = (pointer: string, message: string | RegExp) => ({
  status: 400,
  body: expect.objectContaining({
    type: "about:blank",
    status: 400,
    code: "invalid_request",
    errors: [{ pointer, message: typeof message === "string" ? message : expect.stringMatching(message) }],
  }),
});

describe("query parameters", () => {
  it("arrive as the types that the document gives them", async () => {
    const { status, body } = await call("/v1/items?page=7&ratio=-1.5e1&deep=true&text=a%2Bb+c&other=1");
    expect(status).toBe(200);
    expect(body.query).toEqual({ page: 7, ratio: -15, deep: true, text: "a+b c" });
  });

  it.each([
    ["page=-1", "/query/page", "must be >= 0"],
    ["page=1.5", "/query/page", "must be integer"],
    ["page=", "/query/page", "must be integer"],
    ["page=0x10", "/query/page", "must be integer"],
    ["page=%207", "/query/page", "must be integer"],
    ["page=1e1", "/query/page", "must be integer"],
    ["page=1e999", "/query/page", "must be integer"],
    ["page=+7", "/query/page", "must be integer"],
    ["ratio=Infinity", "/query/ratio", "must be number"],
    ["ratio=1e999", "/query/ratio", "must be number"],
    ["deep=1", "/query/deep", "must be boolean"],
    ["text=12345678901", "/query/text", /^must NOT have more than 10 characters$/],
    ["text=a%00b", "/query/text", "contains a NUL character"],
    ["text=%ff", "/query", "is not UTF-8"],
    ["text=a&text=a", "/query/text", "is given more than once"],
    ["sort=id&sort=size", "/query/sort/1", /^must be one of \["id","name"\]$/],
    ["sort=id&sort=id&sort=id&sort=id", "/query/sort", /^must NOT have more than 3 items$/],
  ])("refuses %s", async (query, pointer, message) => {
    expect(await call(`/v1/items?${query}`)).toMatchObject(refused(pointer, message));
  });

  it("names every place that is wrong, the first of them in the detail", async () => {
    const { body } = await call("/v1/items?page=-1&deep=perhaps");
    expect(body.errors.map(({ pointer }: { pointer: string }) => pointer)).toEqual([
      "/query/page",
      "/query/deep",
    ]);
    expect(body.detail).toBe("The request is not valid: /query/page must be >= 0.");
  });

  it("collects the values of a list, also of one", async () => {
    expect((await call("/v1/items?sort=name&sort=id")).body.query).toEqual({ sort: ["name", "id"] });
    expect((await call("/v1/items?sort=name")).body.query).toEqual({ sort: ["name"] });
  });
});

describe("headers", () => {
  it("are checked if the document constrains them", async () => {
    expect((await call("/v1/items", { headers: { "X-Offset": "-3" } })).body.offset).toBe("-3");
    const tooFar = await call("/v1/items", { headers: { "X-Offset": "15" } });
    expect(tooFar).toMatchObject(refused("/header/x-offset", "must be <= 14"));
    const word = await call("/v1/items", { headers: { "X-Offset": "noon" } });
    expect(word).toMatchObject(refused("/header/x-offset", "must be integer"));
  });

  it("are missed where the document requires them", async () => {
    expect(await call("/v1/numbers/1")).toMatchObject(refused("/header/x-tenant", "is required"));
    const bad = await call("/v1/numbers/1", { headers: { "X-Tenant": "A1" } });
    expect(bad).toMatchObject(refused("/header/x-tenant", /^must match pattern/));
    expect(await call("/v1/numbers/1", { headers: { "X-Tenant": "a" } })).toMatchObject({ status: 200 });
  });
});

describe("path parameters", () => {
  it("arrive decoded, as the types that the document gives them", async () => {
    expect((await call("/v1/items/a%2Fb%20%C3%A9")).body).toEqual({ path: { id: "a/b é" } });
    const headers = { "X-Tenant": "a" };
    expect((await call("/v1/numbers/-12", { headers })).body).toEqual({ path: { number: -12 } });
  });

  it.each([
    ["/v1/items/123456789", "/path/id", "must NOT have more than 8 characters"],
    ["/v1/items/a%00", "/path/id", "contains a NUL character"],
  ])("refuses %s", async (path, pointer, message) => {
    expect(await call(path)).toMatchObject(refused(pointer, message));
  });

  it.each(["one", "1e999", "0x1", "%201"])("refuses %s for an integer", async (text) => {
    const answer = await call(`/v1/numbers/${text}`, { headers: { "X-Tenant": "a" } });
    expect(answer).toMatchObject(refused("/path/number", "must be integer"));
  });

  it("give way to a literal path", async () => {
    expect((await call("/v1/items/latest")).body).toEqual({ latest: true });
  });
});

describe("JSON bodies", () => {
  it("arrive as they were sent", async () => {
    const value = { name: "né\u{1f600}", size: 10, data: [null, { "": 1.5, "a/b~c": [true] }] };
    expect((await send("/v1/items", JSON.stringify(value))).body).toEqual({ got: value });
    const utf8 = await send("/v1/items", JSON.stringify(value), "Application/JSON; charset=utf-8");
    expect(utf8.status).toBe(201);
  });

  const deep = (levels: number) => `{"name":"n","data":${"[".repeat(levels)}${"]".repeat(levels)}}`;
  it.each([
    ["{", "/body", /^is not valid JSON/],
    ["", "/body", /^is not valid JSON/],
    ["{'name':1}", "/body", "is not valid JSON (at character 1)"],
    ["[]", "/body", "must be object"],
    ["null", "/body", "must be object"],
    ["{}", "/body/name", "is required"],
    ['{"name":1}', "/body/name", "must be string"],
    ['{"name":""}', "/body/name", /^must NOT have fewer than 1 characters$/],
    ['{"name":"n","size":"7"}', "/body/size", "must be integer"],
    ['{"name":"n","size":1e999}', "/body/size", "is a number out of range"],
    ['{"name":"n","data":[[-1e999]]}', "/body/data/0/0", "is a number out of range"],
    ['{"name":"n","a/b~c":1}', "/body/a~1b~0c", "is not a member of this object"],
    ['{"name":"n\\u0000"}', "/body/name", "contains a NUL character"],
    ['{"name":"n","data":{"a":[1,"\\ud800"]}}', "/body/data/a/1", "contains half of a surrogate pair"],
    ['{"name":"n","data":{"\\udc00":1}}', "/body/data", /^has a member name that contains half/],
    [deep(33), `/body/data${"/0".repeat(32)}`, "is nested deeper than 32 levels"],
    [deep(10_000), `/body/data${"/0".repeat(32)}`, "is nested deeper than 32 levels"],
    ['{"name":"n","data":{"a":[1,9007199254740993]}}', "/body/data/a/1", /more digits than are kept/],
    ["[".repeat(65_000), "/body", /^is not valid JSON/],
  ])("refuses %.40s", async (text, pointer, message) => {
    expect(await send("/v1/items", text)).toMatchObject(refused(pointer, message));
  });

  it("keeps a member named __proto__ as data, and nothing else gets it", async () => {
    const { status, text } = await send("/v1/items", '{"name":"n","data":{"__proto__":{"polluted":true}}}');
    expect(status).toBe(201);
    expect(text).toContain('"__proto__":{"polluted":true}');
    expect("polluted" in {}).toBe(false);
    const notDeclared = await send("/v1/items", '{"name":"n","__proto__":{"size":1}}');
    expect(notDeclared).toMatchObject(refused("/body/__proto__", "is not a member of this object"));
  });

  it("refuses bytes that are not UTF-8", async () => {
    const bytes = Buffer.concat([Buffer.from('{"name":"'), Buffer.from([0xff]), Buffer.from('"}')]);
    expect(await send("/v1/items", bytes)).toMatchObject(refused("/body", "is not UTF-8"));
  });

  it("reports that a required body is missing", async () => {
    expect(await call("/v1/items", { method: "POST" })).toMatchObject(refused("/body", "is required"));
  });

  it("takes an optional body, and its absence, whether or not the caller names a media type", async () => {
    const path = "/v1/items/a";
    expect((await send(path, '{"reason":"old"}', "application/json", "DELETE")).body.got).toEqual({
      reason: "old",
    });
    expect((await call(path, { method: "DELETE" })).body).toEqual({ path: { id: "a" } });
    const headers = { "content-type": "application/json" };
    expect((await call(path, { method: "DELETE", headers })).body).toEqual({ path: { id: "a" } });
    const empty = await send(path, "{}", "application/json", "DELETE");
    expect(empty).toMatchObject(refused("/body/reason", "is required"));
  });

  it("reports a body that the caller cut off, and logs no error", async () => {
    const before = api.log.lines().length;
    const head = "POST /api/sample/v1/items HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n";
    const socket = connect(api.port, "127.0.0.1");
    socket.write(`${head}Content-Length: 100\r\n\r\n{"na`);
    await setTimeout(50);
    socket.destroy();
    await expect.poll(() => api.completed.at(-1)).toMatchObject({ operation: "createItem", status: 400 });
    expect(
      api.log
        .lines()
        .slice(before)
        .filter(({ level }) => level === "error"),
    ).toEqual([]);
  });
});

describe("media types and sizes of bodies", () => {
  it.each(["text/plain", "application/jsonp", "application/x-www-form-urlencoded"])(
    "refuses %s",
    async (type) => {
      const answer = await send("/v1/items", '{"name":"n"}', type);
      expect(answer).toMatchObject({ status: 415, body: { code: "unsupported_media_type" } });
      expect(answer.body.detail).toBe("The Content-Type must be one of: application/json.");
    },
  );

  it("takes what the document says in x-also-accepts, held to the schema of what it lists", async () => {
    expect((await send("/v1/tokens", '{"grant":"g","x":[1]}')).body).toEqual({ got: { grant: "g", x: [1] } });
    const absent = '{"grant":"g","scope":null,"more":"","deep":[null]}';
    expect((await send("/v1/tokens", absent)).body).toEqual({ got: { grant: "g", deep: [null] } });
    expect(await send("/v1/tokens", '{"grant":1}')).toMatchObject({
      status: 400,
      body: { error_description: "The request is not valid: /body/grant must be string." },
    });
    const types = "application/x-www-form-urlencoded, application/json";
    expect(await send("/v1/tokens", "{}", "text/plain")).toMatchObject({
      status: 415,
      body: { error_description: `The Content-Type must be one of: ${types}.` },
    });
  });

  it("refuses a body without a media type", async () => {
    const bytes = Buffer.from('{"name":"n"}');
    expect(await call("/v1/items", { method: "POST", body: bytes })).toMatchObject({ status: 415 });
    expect(await call("/v1/items/a", { method: "DELETE", body: bytes })).toMatchObject({ status: 415 });
  });

  const filled = (size: number, member = "name") =>
    JSON.stringify({ [member]: "n".repeat(size - JSON.stringify({ [member]: "" }).length) });

  it("takes 64 KiB and not a byte more", async () => {
    expect((await send("/v1/items", filled(65_536))).status).toBe(201);
    const answer = await send("/v1/items", filled(65_537));
    expect(answer).toMatchObject({ status: 413, body: { code: "content_too_large" } });
  });

  it("takes as much as the operation says", async () => {
    const json = "application/json";
    expect((await send("/v1/items/a", filled(131_072, "reason"), json, "DELETE")).status).toBe(200);
    const { status, body } = await send("/v1/items/a", filled(131_073, "reason"), json, "DELETE");
    expect([status, body.detail]).toEqual([413, "The body is larger than 131072 bytes."]);
  });

  const head =
    "POST /api/sample/v1/items HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/json\r\n";

  it("refuses a declared length before anything of the body has come", async () => {
    const answer = await exchange(api.port, `${head}Content-Length: 5000000000\r\n\r\n`);
    expect(answer).toMatch(/^HTTP\/1.1 413 /);
    expect(answer).toContain("content_too_large");
  });

  it("refuses a chunked body as soon as it is too large", async () => {
    const chunk = `4000\r\n${"n".repeat(0x4000)}\r\n`;
    const answer = await exchange(api.port, `${head}Transfer-Encoding: chunked\r\n\r\n${chunk.repeat(5)}`);
    expect(answer).toMatch(/^HTTP\/1.1 413 /);
  });

  it("takes a chunked body that is not", async () => {
    const chunks = '6\r\n{"name\r\n7\r\n":"é"}\r\n0\r\n\r\n';
    const answer = await exchange(api.port, `${head}Transfer-Encoding: chunked\r\n\r\n${chunks}`);
    expect(answer).toMatch(/^HTTP\/1.1 201 /);
    expect(answer).toContain('{"got":{"name":"é"}}');
  });

  it("responds to a client that reads only after it has sent everything", async () => {
    const large = Buffer.alloc(20_000_000, "n");
    for (let times = 0; times < 3; times++) expect((await send("/v1/items", large)).status).toBe(413);
  });
});

describe("encodings of bodies", () => {
  const types = { item: "application/json", form: "application/x-www-form-urlencoded" };
  const sendAs = (type: string, headers: Record<string, string> = {}) => {
    const isForm = type.startsWith(types.form);
    const body = isForm ? "grant=g" : '{"name":"n"}';
    const path = isForm ? "/v1/tokens" : "/v1/items";
    return call(path, { method: "POST", body, headers: { "content-type": type, ...headers } });
  };

  it.each(["utf-8", "UTF-8", '"utf-8"', "utf8", "us-ascii", "utf-8; x=1"])(
    "takes charset=%s",
    async (charset) => {
      expect((await sendAs(`${types.item}; charset=${charset}`)).status).toBe(201);
      expect((await sendAs(`${types.form};charset=${charset}`)).status).toBe(200);
    },
  );

  it.each(["iso-8859-1", "utf-16", "", "utf-8x"])("refuses charset=%s", async (charset) => {
    const answer = await sendAs(`${types.item}; Charset = ${charset}`);
    expect(answer).toMatchObject({ status: 415, body: { code: "unsupported_media_type" } });
    expect(answer.body.detail).toBe("The charset of the Content-Type must be utf-8.");
    expect((await sendAs(`${types.form}; charset=${charset}`)).status).toBe(415);
  });

  it.each(["gzip", "br", "gzip, identity", "x"])("refuses Content-Encoding: %s", async (encoding) => {
    const answer = await sendAs(types.item, { "content-encoding": encoding });
    expect(answer).toMatchObject({ status: 415, body: { code: "unsupported_media_type" } });
    expect(answer.body.detail).toBe("The body must not be compressed: send it without Content-Encoding.");
    expect((await sendAs(types.form, { "content-encoding": encoding })).status).toBe(415);
  });

  it.each(["identity", "Identity", ""])("takes Content-Encoding: %s", async (encoding) => {
    expect((await sendAs(types.item, { "content-encoding": encoding })).status).toBe(201);
  });
});

describe("forms", () => {
  const form = (text: string | Uint8Array<ArrayBuffer>) =>
    send("/v1/tokens", text, "application/x-www-form-urlencoded");
  const refusal = (description: string) => ({
    status: 400,
    body: { error: "invalid_request", error_description: `The request is not valid: ${description}.` },
  });

  it("arrive as texts; an empty field is absent, an unknown one is passed over by the schema", async () => {
    const { status, body } = await form("grant=a%20b+c%26%C3%A9&scope=&more=100%");
    expect(status).toBe(200);
    expect(body.got).toEqual({ grant: "a b c&é", more: "100%" });
    expect((await form("grant=g&__proto__=p")).text).toContain('"__proto__":"p"');
  });

  it.each([
    ["", "/body/grant is required"],
    ["grant=", "/body/grant is required"],
    ["grant=a&grant=a", "/body/grant is given more than once"],
    ["grant=a&grant=", "/body/grant is given more than once"],
    ["grant=a&x=1&x=2", "/body/x is given more than once"],
    ["grant=a%00", "/body/grant contains a NUL character"],
    ["grant=%ff%fe", "/body is not UTF-8"],
    ["grant=100%&scope=%c3", "/body is not UTF-8"],
  ])("refuses %s", async (text, description) => {
    expect(await form(text)).toMatchObject(refusal(description));
  });

  it("refuses bytes that are not UTF-8", async () => {
    const bytes = Buffer.concat([Buffer.from("grant="), Buffer.from([0xc3, 0x28])]);
    expect(await form(bytes)).toMatchObject(refusal("/body is not UTF-8"));
  });
});

describe("a large body with much that is wrong", () => {
  const members = (count: number) =>
    Object.fromEntries(Array.from({ length: count }, (_, n) => [`unknown-${n}`, 0]));

  it("names every wrong place of a small one, the first twenty of a large one", async () => {
    const small = await send("/v1/items", JSON.stringify({ size: 11, ...members(2) }));
    expect(small.body.errors).toHaveLength(4);
    const large = await send("/v1/items", JSON.stringify({ size: 11, ...members(3_000) }));
    expect(large.body.errors[0]).toEqual({ pointer: "/body/name", message: "is required" });
    expect(large.body.errors).toHaveLength(20);
  });

  it("takes a valid one", async () => {
    const data = "x".repeat(60_000);
    const { status, body } = await send("/v1/items", JSON.stringify({ name: "a", data }));
    expect(status).toBe(201);
    expect(body.got).toEqual({ name: "a", data });
  });

  it("takes a form of a hundred parameters, and no more", async () => {
    const form = (count: number) =>
      ["grant=a", ...Array.from({ length: count - 1 }, (_, n) => `unknown-${n}=b`)].join("&");
    const type = "application/x-www-form-urlencoded";
    expect((await send("/v1/tokens", form(100), type)).status).toBe(200);
    const { status, body } = await send("/v1/tokens", form(101), type);
    expect(status).toBe(400);
    expect(body.error_description).toContain("has more than 100 parameters");
    const json = (count: number) => JSON.stringify({ grant: "a", ...members(count - 1) });
    expect((await send("/v1/tokens", json(100))).status).toBe(200);
    expect((await send("/v1/tokens", json(101))).body).toEqual(body);
  });
});
