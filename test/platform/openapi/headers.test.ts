/** Headers of real requests, over HTTP/1.1 and HTTP/2: by any spelling, each value, joined where there are more. */
import { once } from "node:events";
import { createServer } from "node:http";
import { connect as connectHttp2, createServer as createHttp2Server } from "node:http2";
import { connect } from "node:net";
import { expect, test } from "vitest";
import { listening } from "../../../src/platform/http/server.ts";
import { headerReader } from "../../../src/platform/openapi/handlers.ts";

const names = ["authorization", "content-type", "x-request-id", "accept", "x-empty", "x-absent", "host"];

test("over HTTP/1.1", async () => {
  const server = createServer((request, response) => {
    const header = headerReader(request);
    response.end(JSON.stringify(Object.fromEntries(names.map((name) => [name, header(name) ?? null]))));
  });
  const port = await listening(server, "127.0.0.1", 0);
  const socket = connect(port, "127.0.0.1");
  const lines = [
    ...["GET / HTTP/1.1", "Host: example.org", "AUTHORIZATION: Basic one", "authorization: Basic two"],
    ...["Content-Type:   text/plain  ", "X-Request-ID: abc", "X-Empty:", "Accept: a/b", "Accept: c/d"],
    ...["Connection: close", "", ""],
  ];
  socket.end(lines.join("\r\n"));
  let text = "";
  for await (const chunk of socket.setEncoding("utf8")) text += String(chunk);
  server.close();
  expect(JSON.parse(text.slice(text.indexOf("{"), text.lastIndexOf("}") + 1))).toEqual({
    // Two are no credentials: the first alone would be.
    authorization: "Basic one, Basic two",
    "content-type": "text/plain",
    "x-request-id": "abc",
    accept: "a/b, c/d",
    "x-empty": "",
    "x-absent": null,
    host: "example.org",
  });
});

test("over HTTP/2", async () => {
  const server = createHttp2Server((request, response) => {
    const header = headerReader(request);
    response.end(JSON.stringify(Object.fromEntries(names.map((name) => [name, header(name) ?? null]))));
  });
  const port = await listening(server, "127.0.0.1", 0);
  const session = connectHttp2(`http://127.0.0.1:${port}`);
  const stream = session.request({
    ":path": "/",
    authorization: "Basic one",
    "X-Request-Id": "abc",
    accept: ["a/b", "c/d"],
  });
  let text = "";
  for await (const chunk of stream.setEncoding("utf8")) text += String(chunk);
  session.close();
  await once(session, "close");
  server.close();
  expect(JSON.parse(text)).toMatchObject({
    authorization: "Basic one",
    "x-request-id": "abc",
    accept: "a/b, c/d",
    "x-absent": null,
  });
});
