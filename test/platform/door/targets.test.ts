/** Equal targets get equal treatment, however they are spelled, by every protocol on the port of HTTP. */
import { once } from "node:events";
import { request as httpRequest } from "node:http";
import { connect as connectHttp2 } from "node:http2";
import { text } from "node:stream/consumers";
import { describe, expect, it, onTestFinished } from "vitest";
import { normalTarget } from "../../../src/platform/door/targets.ts";
import { exchange } from "../../support/http-app.ts";
import { startServer } from "../../support/http-connections.ts";
import { localhostCertificate } from "../../support/localhost-certificate.ts";
import { startSheddableServers } from "../../support/sheddable-servers.ts";

const form = "application/x-www-form-urlencoded";
const rpc = "auth.v1.IntrospectionService/Introspect";

interface Sent {
  readonly path: string;
  readonly type: string;
  readonly body: string;
  readonly method?: string;
}

async function send(port: number, { path, type, body, method = "POST" }: Sent) {
  const headers = { "content-type": type };
  const sent = httpRequest({ host: "127.0.0.1", port, method, path, headers, agent: false });
  sent.end(method === "POST" ? body : undefined);
  const [response] = await once(sent, "response");
  return { status: response.statusCode, body: await text(response) };
}

async function sendHttp2(port: number, { path, type, body, method = "POST" }: Sent) {
  const session = connectHttp2(`https://localhost:${port}`, { ca: localhostCertificate.cert });
  onTestFinished(() => session.destroy());
  const stream = session.request({ ":path": path, ":method": method, "content-type": type });
  stream.end(method === "POST" ? body : undefined);
  const [headers] = await once(stream, "response");
  return { status: headers[":status"], body: await text(stream) };
}

/** A gRPC-Web message without members. */
const emptyMessage = "\0\0\0\0\0";

const operations: readonly Sent[] = [
  { path: "/api/sample/v1/tokens", type: form, body: "grant=a" },
  { path: "/api/sample/v1/behaviours/good", type: form, body: "", method: "GET" },
  { path: `/${rpc}`, type: "application/json", body: "{}" },
  { path: `/${rpc}`, type: "application/grpc-web+proto", body: emptyMessage },
];
const encoded = (path: string) => path.replace("s", "%73").replace("v1", "%76%31").replace("s", "%73");

it.each(operations)("$path ($type) is counted and served in each spelling", async (operation) => {
  const servers = await startSheddableServers();
  servers.release();
  const counted = async () => {
    const each = ["high", "normal", "low"].map(async (priority) => {
      const count = await servers.metric(`sample_request_wait_seconds_count{priority="${priority}"}`);
      return count ?? 0;
    });
    return (await Promise.all(each)).reduce((sum, one) => sum + one, 0);
  };
  const usual = await send(servers.httpPort, operation);
  expect(usual.status).toBe(200);
  const { path } = operation;
  const spellings = [
    encoded(path),
    encoded(path).replaceAll("%76", "v"),
    `${path}?`,
    `http://127.0.0.1:${servers.httpPort}${path}`,
    `HTTPS://auth.example${encoded(path)}`,
  ];
  for (const spelling of spellings)
    expect(await send(servers.httpPort, { ...operation, path: spelling })).toEqual(usual);
  expect(await counted()).toBe(1 + spellings.length);
});

it.each(operations)("$path ($type) is counted and served encoded over HTTP/2", async (operation) => {
  const servers = await startSheddableServers({ tls: localhostCertificate });
  servers.release();
  const usual = await sendHttp2(servers.httpPort, operation);
  expect(usual.status).toBe(200);
  expect(await sendHttp2(servers.httpPort, { ...operation, path: encoded(operation.path) })).toEqual(usual);
  const lines = ["high", "normal", "low"].map(async (priority) =>
    servers.metric(`sample_request_wait_seconds_count{priority="${priority}"}`),
  );
  expect(await Promise.all(lines)).toContain(2);
});

describe("a target", () => {
  it.each([
    ["/a%2Db%5f%7e%2E%30", "/a-b_~.0"],
    ["/%2fa%2F%5c%25%c3%A9", "/%2Fa%2F%5C%25%C3%A9"],
    ["/%2569d", "/%2569d"],
    ["/%zz%4", "/%zz%4"],
    ["/a?b=%61%26", "/a?b=a%26"],
  ])("%s becomes %s", (written, target) => {
    expect(normalTarget(written)).toEqual({ target });
  });

  it("that is a URL has its authority in place of Host, and / in place of no path", async () => {
    const { port } = await startServer({
      fetch: ({ url }) => new Response(url),
      routes: [
        {
          method: undefined,
          path: "/rpc",
          handle: async (request, response) => void response.end(`${request.headers.host}`),
        },
      ],
    });
    const ask = async (start: string) => {
      const response = await exchange(port, `GET ${start}\r\nConnection: close\r\n\r\n`);
      const [head = "", body] = response.split("\r\n\r\n");
      return [Number(head.split(" ")[1]), body];
    };
    expect(await ask("http://b.example/x%2fy?z HTTP/1.1\r\nHost: a")).toEqual([
      200,
      "http://b.example/x%2Fy?z",
    ]);
    expect(await ask("http://b.example?z HTTP/1.1\r\nHost: a")).toEqual([200, "http://b.example/?z"]);
    expect(await ask("http://b.example/rpc HTTP/1.1\r\nHost: a")).toEqual([200, "b.example"]);
    expect(await ask("http://b.example/rpc HTTP/1.0")).toEqual([200, "b.example"]);
  });

  it.each([
    ["http://user@a/x", "a"],
    ["http://a\\@b/x", "a"],
    ["http:///x", "a"],
    ["ftp://a/x", "a"],
    ["*", "a"],
    ["http://a/x#y", "a"],
    ["http://a#y", "a"],
    ["http://a/x/../y", "a"],
    ["http://a/%2e%2E/y", "a"],
    ["/x/%2e", "a"],
    ["http://a b/x", "a"],
    ["http://[a/x", "a"],
    ["http://a/x", undefined],
  ])("that is %s (Host: %s) is refused", async (target, host) => {
    const { port } = await startServer();
    const fields = `${host === undefined ? "" : `Host: ${host}\r\n`}Connection: close\r\n\r\n`;
    expect(await exchange(port, `GET ${target} HTTP/1.1\r\n${fields}`)).toMatch(
      /^HTTP\/1\.1 400 [\s\S]*"code":"invalid_request"/,
    );
  });

  it("that is a URL is refused over HTTP/2, which has no such form", async () => {
    const { port } = await startServer({ tls: true });
    const path = "https://localhost/rpc.v1.Service/Method";
    await expect(sendHttp2(port, { path, type: "text/plain", body: "" })).rejects.toThrow("PROTOCOL_ERROR");
  });
});
