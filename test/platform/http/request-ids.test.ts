/** A caller's X-Request-Id is on every response that is made before a handler of an API, or without one. */
import { once } from "node:events";
import { describe, expect, it, onTestFinished } from "vitest";
import { createHttpServer } from "../../../src/platform/http/server.ts";
import { captureLog } from "../../support/captured-log.ts";
import { drip, raw, session, startServer } from "../../support/http-connections.ts";

const id = "a-request-of-mine";

/** The id that a response and its body have. */
function idsOf(response: string) {
  const [, header] = /^X-Request-Id: (.*)\r$/im.exec(response) ?? [];
  const [, body] = /"requestId":"([^"]*)"/.exec(response) ?? [];
  return [header, body];
}

describe("a caller's request id is on the response", () => {
  it.each([
    ["to a dot segment", "GET /a/%2e", "", "400"],
    ["to a backslash", "GET /a\\b", "", "400"],
    ["to a fragment", "GET /a#b", "", "400"],
    ["to a target that is no path", "OPTIONS *", "", "400"],
    ["to a URL with a user", "GET http://me@a/", "", "400"],
    ["to a Host that is not valid", "GET /a", "Host: a b/c\r\n", "400"],
    ["to two Hosts", "GET /a", "Host: a\r\nHost: b\r\n", "400"],
    ["to no Host", "GET /a", "No: host\r\n", "400"],
    ["to an Expect that cannot be met", "GET /a", "Host: a\r\nExpect: b\r\n", "417"],
    [
      "to a transfer coding that is not understood",
      "POST /a",
      "Host: a\r\nTransfer-Encoding: gzip, chunked\r\n",
      "501",
    ],
    ["to a chunk that is none", "POST /a", "Host: a\r\nTransfer-Encoding: chunked\r\n", "400"],
    ["to an error of an API", "GET /fail", "", "500"],
    ["to a defect of RPC", "GET /rpc", "", "500"],
  ])("%s", async (_what, start, fields, status) => {
    const rpc = { method: undefined, path: "/rpc", handle: async () => JSON.parse("inner matter") };
    const { port } = await startServer({ routes: [rpc] });
    const { socket, received } = raw(port);
    const body = fields.includes("chunked") ? "x\r\n" : "";
    const head = `${start} HTTP/1.1\r\n${fields || "Host: a\r\n"}X-Request-Id: ${id}\r\nConnection: close`;
    socket.write(`${head}\r\n\r\n${body}`);
    const response = await received;
    expect(response).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    expect(idsOf(response)).toEqual([id, id]);
  });

  it("to a body that does not arrive in time", async () => {
    const { port } = await startServer({ headersMs: 100, requestMs: 300 });
    const { socket, received } = raw(port);
    socket.write(`POST /a HTTP/1.1\r\nHost: a\r\nX-Request-Id: ${id}\r\nContent-Length: 1000\r\n\r\n`);
    const dripping = drip(socket, "x");
    const response = await received;
    expect(response).toMatch(/^HTTP\/1\.1 408 /);
    expect(idsOf(response)).toEqual([id, id]);
    await dripping;
  });

  it.each(["/a/..", "/a\\b", "/fail"])("to %s over HTTP/2", async (path) => {
    const { port } = await startServer({ tls: true });
    const stream = session(port).request({ ":path": path, "x-request-id": id });
    const [headers] = await once(stream, "response");
    expect(headers["x-request-id"]).toBe(id);
    stream.close();
  });

  it("while the server starts", async () => {
    const server = createHttpServer(captureLog());
    onTestFinished(() => server.close(0));
    const port = await server.listen("127.0.0.1", 0);
    const response = await fetch(`http://127.0.0.1:${port}/`, { headers: { "x-request-id": id } });
    expect(response.status).toBe(503);
    expect(response.headers.get("x-request-id")).toBe(id);
  });
});
