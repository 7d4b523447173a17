/** Auth stalls within a body: the client gives up in time, also where memory is collected meanwhile. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { createAuthClient } from "@gatepost/client";

const { Bun, gc, setTimeout } = globalThis;
const collect = Bun ? () => Bun.gc(true) : gc;
assert(collect, "the runtime was started without its switch for collecting memory");
globalThis.setTimeout = (act, ms) => setTimeout(act, ms / 10);

const server = createServer((_request, response) => response.writeHead(200).write('{"keys":'));
server.listen(0, "127.0.0.1");
await once(server, "listening");
const auth = createAuthClient({
  url: `http://127.0.0.1:${server.address().port}`,
  // With it, Node.js 20 and 22 forget the signal when they collect.
  fetch: (url, init) => fetch(url, { ...init, redirect: "error" }),
});

const collecting = setInterval(collect, 50);
const called = auth.request("getKeySet").catch((error) => error.name);
let late;
const waited = new Promise((resolve) => {
  late = setTimeout(resolve, 5_000, "It still waits");
});
const outcome = await Promise.race([called, waited]);
clearInterval(collecting);
clearTimeout(late);
globalThis.setTimeout = setTimeout;
assert.equal(outcome, "UnavailableError");
server.close();
server.closeAllConnections();
