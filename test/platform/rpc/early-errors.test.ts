/** Errors over HTTP/1.1 that are known from the head of a request, before its body has come. */
import { connect } from "node:net";
import { beforeAll, expect, it, onTestFinished } from "vitest";
import { type RpcServers, startRpcServers } from "../../support/rpc-servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";

let servers: RpcServers;
const cleanup = suiteCleanup();
beforeAll(async () => {
  servers = await startRpcServers();
  cleanup.defer(() => servers.close());
});

const path = "/auth.v1.IntrospectionService/Introspect";
const json = "Content-Type: application/json";

it.each([
  ["an encoding that is not served", path, `${json}\r\nContent-Encoding: br`, 501],
  ["a malformed timeout", path, `${json}\r\nConnect-Timeout-Ms: soon`, 400],
  ["a deadline that has passed", path, `${json}\r\nConnect-Timeout-Ms: 0`, 504],
  ["another content type", path, "Content-Type: text/plain", 415],
  ["an unknown method", `${path}s`, json, 501],
])("%s leaves the connection open for the body and the next request", async (_, to, fields, status) => {
  const socket = connect(servers.http1Port, "127.0.0.1");
  onTestFinished(() => void socket.destroy());
  let received = "";
  socket.setEncoding("latin1").on("data", (text: string) => {
    received += text;
  });
  const statuses = () => received.match(/HTTP\/1.1 \d+/g);
  socket.write(`POST ${to} HTTP/1.1\r\nHost: x\r\n${fields}\r\nContent-Length: 9\r\n\r\n{"to`);
  await waitFor(() => expect(statuses()).toEqual([`HTTP/1.1 ${status}`]));
  socket.write(`ken"}GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`);
  await waitFor(() => expect(statuses()).toEqual([`HTTP/1.1 ${status}`, "HTTP/1.1 405"]));
});
