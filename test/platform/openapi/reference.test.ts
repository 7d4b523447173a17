/** A contract as it is served to people and to generators of clients. */
import { readFileSync } from "node:fs";
import { runInNewContext } from "node:vm";
import { Hono } from "hono";
import { beforeAll, describe, expect, it } from "vitest";
import { parse } from "yaml";
import { notFound } from "../../../src/platform/openapi/bind.ts";
import {
  type ContractDocument,
  contractTexts,
  loadContract,
} from "../../../src/platform/openapi/document.ts";
import { createApiReference, createIndex } from "../../../src/platform/openapi/reference.ts";
import { captureLog } from "../../support/captured-log.ts";
import { exchange, type ServedApp, serveApp } from "../../support/http-app.ts";
import { sampleTexts } from "../../support/sample-api.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

const file = (path: string) => new URL(`../../../${path}`, import.meta.url);
const auth = file("openapi/auth.yaml");

let served: ServedApp;
let sample: ContractDocument;
const cleanup = suiteCleanup();
beforeAll(async () => {
  const { logger } = captureLog();
  sample = await loadContract(sampleTexts);
  const app = new Hono();
  const contract = await loadContract(contractTexts("auth", "auth"));
  const verifier = await loadContract(contractTexts("otp-verifier"));
  app.route("/", createApiReference(contract, logger));
  app.route("/", createApiReference(verifier, logger));
  app.route("/", createApiReference(sample, logger));
  const apis = [{ document: contract }, { document: sample }];
  app.route("/", createIndex("gatepost", apis, logger));
  app.notFound(notFound(logger));
  served = await serveApp(app);
  cleanup.defer(() => served.close());
});

it.each(["auth", "otp-verifier", "push-orchestration"])(
  "%s is served and enforced as it is written",
  (name) => {
    const { yaml, json } = contractTexts(name);
    expect(JSON.parse(json)).toEqual(parse(yaml));
  },
);

const get = (path: string, init?: RequestInit) => fetch(served.origin + path, init);

const pages = [
  ["/", "application/json"],
  ["/api/auth", "application/json"],
  ["/api/auth/openapi.json", "application/json"],
  ["/api/auth/openapi.yaml", "application/yaml"],
  ["/api/auth/protos/auth/v1/introspection.proto", "text/plain; charset=utf-8"],
  ["/api/auth/protos/descriptors.binpb", "application/protobuf"],
  ["/api/auth/docs", "text/html; charset=utf-8"],
  ["/api/auth/docs/assets/swagger-ui.css", "text/css; charset=utf-8"],
  ["/api/auth/docs/assets/swagger-ui-bundle.js", "text/javascript; charset=utf-8"],
  ["/api/auth/docs/assets/initialiser.js", "text/javascript; charset=utf-8"],
  ["/api/auth/docs/assets/favicon-32x32.png", "image/png"],
] as const;

/** The document, served from this address instead of the one that is written in it. */
const movedTo = (origin: string) =>
  readFileSync(auth, "utf8").replace("url: http://127.0.0.1:8080/", `url: ${origin}/`);

describe("the document", () => {
  it("is served as YAML as it is written, but for the address of its servers", async () => {
    const yaml = await (await get("/api/auth/openapi.yaml")).text();
    expect(yaml).toBe(movedTo(served.origin));
    expect(yaml).not.toContain("http://127.0.0.1:8080");
  });

  it("is served as JSON with the same meaning, references and all", async () => {
    const json = await (await get("/api/auth/openapi.json")).json();
    expect(json).toEqual(parse(movedTo(served.origin)));
    expect(JSON.stringify(json)).toContain('"$ref":"#/components/');
  });

  it("is each service's own", async () => {
    expect(await (await get("/api/sample/openapi.json")).json()).toMatchObject({
      info: { title: sample.title },
    });
  });

  it.each(["/api/auth", "/api/sample", "/otp-verifier"])(
    "names one server without variables, the one that was asked: %s",
    async (basePath) => {
      const url = served.origin + basePath;
      const [text, json] = await Promise.all([
        get(`${basePath}/openapi.yaml`).then((response) => response.text()),
        get(`${basePath}/openapi.json`).then((response) => response.json()),
      ]);
      for (const { servers } of [parse(text), json]) {
        expect(servers).toEqual([expect.objectContaining({ url })]);
        expect(servers[0]).not.toHaveProperty("variables");
      }
    },
  );

  it.each([
    ["http://127.0.0.1:8080/api/sample\n", "'{base_url}/api/sample'\n"],
    ["http://127.0.0.1:8080/api/sample\n", "http://127.0.0.1:8080/api/sample/\n"],
    ["http://127.0.0.1:8080/api/sample\n", "/api/sample\n"],
    ["security: []\n", "  - url: http://127.0.0.1:9090/b\nsecurity: []\n"],
    ["  /v1/items:\n", "  /v1/items:\n    servers: [{ url: http://127.0.0.1:8080/b }]\n"],
  ])("is refused with a server that readers of documents stumble over: %j, %j", async (from, to) => {
    const yaml = sampleTexts.yaml.replace(from, to);
    expect(yaml).not.toBe(sampleTexts.yaml);
    const loading = loadContract({ yaml, json: JSON.stringify(parse(yaml)) });
    await expect(loading).rejects.toThrow("a document names one server");
  });

  it("names the host of the header where the request's target has another, and is for this client only", async () => {
    const answer = await exchange(
      served.port,
      "GET http://evil.example/api/auth/openapi.yaml HTTP/1.1\r\nHost: good.example\r\nConnection: close\r\n\r\n",
    );
    expect(answer).toMatch(/^cache-control: private, /im);
    expect(answer).not.toContain("evil.example");
    expect(answer).toContain("good.example");
  });

  it.each([
    ["auth.example.com", "", "http://auth.example.com"],
    ["auth.example.com:8443", "X-Forwarded-Proto: https\r\n", "https://auth.example.com:8443"],
    ["[::1]:9", "", "http://[::1]:9"],
    ["a", "X-Forwarded-Proto: javascript\r\n", "http://a"],
    ['a"b', "", "http://127.0.0.1:8080"],
    ["a{b}", "", "http://127.0.0.1:8080"],
    ["a'b", "", "http://127.0.0.1:8080"],
  ])("names the host %s that the client used, if it is one", async (host, header, origin) => {
    const answer = await exchange(
      served.port,
      `GET /api/auth/openapi.yaml HTTP/1.1\r\nHost: ${host}\r\n${header}Connection: close\r\n\r\n`,
    );
    const [head = "", body] = answer.split("\r\n\r\n");
    if (head.startsWith("HTTP/1.1 400")) return expect(host).toMatch(/["{']/);
    expect(head).toMatch(/^vary: Host, X-Forwarded-Proto, Origin$/im);
    expect(body).toBe(movedTo(origin));
  });
});

describe("the index", () => {
  const links = {
    name: "Gatepost auth",
    path: "/api/auth",
    docs: "/api/auth/docs",
    openapiYaml: "/api/auth/openapi.yaml",
    openapiJson: "/api/auth/openapi.json",
    asyncapi: "/api/auth/asyncapi.json",
    protos: {
      descriptorSet: "/api/auth/protos/descriptors.binpb",
      files: ["/api/auth/protos/auth/v1/events.proto", "/api/auth/protos/auth/v1/introspection.proto"],
    },
  };
  const paths = [
    links.docs,
    links.openapiYaml,
    links.openapiJson,
    links.asyncapi,
    links.protos.descriptorSet,
    ...links.protos.files,
  ];

  it("of a base path names the API and the paths of its documents, which exist", async () => {
    const index = await (await get("/api/auth")).json();
    expect(index).toEqual(links);
    for (const path of paths) expect((await get(path)).status, path).toBe(200);
    expect((await get("/api/auth/")).url).toBe(`${served.origin}/api/auth`);
  });

  it("of the host names every API", async () => {
    const index = await (await get("/")).json();
    expect(index).toEqual({ services: [links, expect.objectContaining({ path: "/api/sample" })] });
  });

  it.each(["/", "/api/auth"])("is a page with the same links for browsers: %s", async (path) => {
    const accept = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    const response = await get(path, { headers: { accept } });
    expect(response.headers.get("content-type")).toBe("text/html; charset=utf-8");
    expect(response.headers.get("vary")).toBe("Accept, Origin");
    const html = await response.text();
    for (const link of paths) expect(html).toContain(`<a href="${link}">`);
    const other = await get(path, {
      headers: { accept, "if-none-match": response.headers.get("etag") ?? "" },
    });
    expect([other.status, other.headers.get("vary")]).toEqual([304, "Accept, Origin"]);
  });

  it("shows a title as text, whatever is in it", async () => {
    const html = await (await get("/api/sample", { headers: { accept: "text/html" } })).text();
    expect(html).toContain("<h1>Sample &#60;for tests&#62;</h1>");
  });
});

/** A page that shows the origin which its client used is for no other client. */
const cachedBy = (path: string) =>
  /openapi\.(json|yaml)/.test(path) ? "private, max-age=300" : "public, max-age=300";

describe.each(pages)("%s", (path, type) => {
  it(`is ${type}, kept for five minutes`, async () => {
    const response = await get(path, { headers: { "x-request-id": "r-1" } });
    expect(response.status).toBe(200);
    const { headers } = response;
    expect(headers.get("content-type")).toBe(type);
    expect(headers.get("x-content-type-options")).toBe("nosniff");
    expect(headers.get("cache-control")).toBe(cachedBy(path));
    expect(headers.get("x-request-id")).toBe("r-1");
    expect(headers.get("etag")).toMatch(/^"[\w-]{16}"$/);
    expect((await response.arrayBuffer()).byteLength).toBe(Number(headers.get("content-length")));
  });

  it("is 304 for who has it already", async () => {
    const etag = (await get(path)).headers.get("etag") ?? "";
    for (const tag of [etag, `W/${etag}`, `"other", ${etag}`, "*"]) {
      const response = await get(path, { headers: { "if-none-match": tag } });
      expect(response.status, tag).toBe(304);
      expect(response.headers.get("etag")).toBe(etag);
      expect(response.headers.get("cache-control")).toBe(cachedBy(path));
      expect(response.headers.get("x-request-id")).not.toBeNull();
      expect(await response.text()).toBe("");
    }
    const other = await get(path, { headers: { "if-none-match": '"other"' } });
    expect(other.status).toBe(200);
    await other.body?.cancel();
  });

  it("answers HEAD and OPTIONS, and refuses the rest", async () => {
    const [full, head] = await Promise.all([get(path), get(path, { method: "HEAD" })]);
    const named = ["content-type", "content-length", "etag", "cache-control"];
    const of = ({ headers }: Response) => named.map((name) => headers.get(name));
    expect([head.status, ...of(head)]).toEqual([200, ...of(full)]);
    expect(await head.text()).toBe("");
    await full.body?.cancel();

    const options = await get(path, { method: "OPTIONS" });
    expect([options.status, options.headers.get("allow")]).toEqual([204, "GET, HEAD, OPTIONS"]);
    for (const method of ["POST", "PUT", "DELETE"]) {
      const refused = await get(path, { method });
      expect([refused.status, refused.headers.get("allow")]).toEqual([405, "GET, HEAD, OPTIONS"]);
      expect(refused.headers.get("content-type")).toBe("application/problem+json");
      const requestId = refused.headers.get("x-request-id");
      expect(await refused.json()).toMatchObject({ code: "method_not_allowed", status: 405, requestId });
    }
  });
});

describe("the page", () => {
  const linksOf = (html: string) =>
    [...html.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, link]) => link ?? "");

  it("may load from this server only, and run no script of its own text", async () => {
    const response = await get("/api/auth/docs");
    const policy = response.headers.get("content-security-policy")?.split("; ") ?? [];
    expect(policy.slice(0, 5)).toEqual([
      "default-src 'none'",
      "script-src 'self'",
      "style-src 'self' 'unsafe-inline'",
      "img-src 'self' data:",
      "connect-src 'self'",
    ]);
    const html = await response.text();
    for (const [, text] of html.matchAll(/<script[^>]*>([^<]*)<\/script>/g)) expect(text).toBe("");
    expect(html).not.toMatch(/ on\w+=|https?:|\/\//);
    const script = await (await get("/api/auth/docs/assets/initialiser.js")).text();
    expect(script).not.toMatch(/https?:/);
    expect(() => new Function(script)).not.toThrow();
  });

  it("sends to this server, and nothing of the browser's own, so that a 401 opens no dialog of its", async () => {
    const script = await (await get("/api/auth/docs/assets/initialiser.js")).text();
    const sent: unknown[] = [];
    runInNewContext(script, {
      URL,
      location: new URL("http://a/api/auth/docs"),
      SwaggerUIBundle({ requestInterceptor }: { requestInterceptor(request: object): unknown }) {
        sent.push(requestInterceptor({ url: "http://b/v1/identities?c=d" }));
        sent.push(requestInterceptor({ url: "http://b/openapi.json", loadSpec: true }));
      },
    });
    expect(sent).toEqual([
      { url: "http://a/v1/identities?c=d", credentials: "omit" },
      // Who protects the page with a login of its own protects the document likewise.
      { url: "http://a/openapi.json", loadSpec: true },
    ]);
  });

  it("writes no address of an operation, which would be shown without the parameters of its path when opened", async () => {
    const script = await (await get("/api/auth/docs/assets/initialiser.js")).text();
    const options: { deepLinking?: boolean }[] = [];
    runInNewContext(script, { SwaggerUIBundle: (given: object) => options.push(given) });
    expect(options.map(({ deepLinking = false }) => deepLinking)).toEqual([false]);
  });

  it("finds all it links to", async () => {
    const links = linksOf(await (await get("/api/auth/docs")).text());
    expect(links.length).toBe(5);
    for (const link of links) {
      const response = await get(new URL(link, "http://a/api/auth/docs").pathname);
      expect(response.status, link).toBe(200);
      await response.body?.cancel();
    }
  });

  it("shows a title as text, whatever is in it", async () => {
    const html = await (await get("/api/sample/docs")).text();
    expect(html).toContain("<title>Sample &#60;for tests&#62;: API reference</title>");
  });

  it("is found with a slash at the end as well", async () => {
    const response = await get("/api/auth/docs/", { redirect: "manual" });
    expect([response.status, response.headers.get("location")]).toEqual([308, "../docs"]);
    expect((await get("/api/auth/docs/")).url).toBe(`${served.origin}/api/auth/docs`);
  });
});

describe("the disk", () => {
  it.each([
    "/api/auth/docs/assets/",
    "/api/auth/docs/assets/package.json",
    "/api/auth/docs/assets/swagger-ui-bundle.js.map",
    "/api/auth/docs/assets/index.html",
    "/api/auth/docs/assets/..%2Fpackage.json",
    "/api/auth/docs/assets/%2e%2e/package.json",
    "/api/auth/docs/assets/../../../../../package.json",
    "/api/auth/docs/assets//etc/passwd",
    "/api/auth/docs/assets/swagger-ui.css%00.png",
    "/api/auth/openapi.yaml/../auth.yaml",
    "/api/auth/protos/",
    "/api/auth/protos/grpc/health/v1/health.proto",
    "/api/auth/protos/push/v1/delivery.proto",
    "/api/auth/protos/..%2Fbuf.gen.yaml",
    "/openapi.yaml",
  ])("is closed but for what the page needs: %s", async (path) => {
    const answer = await exchange(
      served.port,
      `GET ${path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`,
    );
    expect(answer).toMatch(/^HTTP\/1.1 404 /);
    expect(answer).toContain('"code":"not_found"');
  });
});
