/** Auth in trouble: the verifier gives up in time, also where memory is collected meanwhile, and asks nobody else. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { text } from "node:stream/consumers";
import { createVerifier } from "@gatepost/verifier";

const collect = globalThis.Bun ? () => globalThis.Bun.gc(true) : globalThis.gc;
assert(collect, "the runtime was started without its switch for collecting memory");

/** Paths of requests. */
const seen = [];
const server = createServer(async (request, response) => {
  const path = request.url.split("/").at(-1);
  seen.push(path);
  if (path !== "introspect")
    return response.end(JSON.stringify({ issuer, introspection_endpoint: `${issuer}/introspect` }));
  troubles[new URLSearchParams(await text(request)).get("token")](response);
});
server.listen(0, "127.0.0.1");
await once(server, "listening");
const issuer = `http://127.0.0.1:${server.address().port}/api/auth`;
const introspection = { clientId: "orders-api", clientSecret: "secret" };
const verifier = createVerifier({ issuer, audience: "orders-api", mode: "strict", introspection });

const inactive = '{"active":false}';
const troubles = {
  stalls: (response) => response.writeHead(200).write('{"active":'),
  hangs: () => undefined,
  floods(response) {
    const more = () => response.write("a".repeat(1 << 20), () => response.destroyed || more());
    response.writeHead(200).write('{"active":false,"x":"');
    more();
  },
  redirects: (response) => response.writeHead(307, { location: `${issuer}/elsewhere` }).end(),
  works: (response) => response.end(inactive),
  /** The first time, as if the connection had been idle for too long. */
  resets(response) {
    troubles.resets = troubles.works;
    response.socket.resetAndDestroy();
  },
};

async function expectStatus(status, trouble) {
  const late = new Promise((resolve) => setTimeout(resolve, 5_000));
  const outcome = await Promise.race([verifier.verify(`Bearer ${trouble}`), late]);
  assert.equal(outcome?.refusal.status, status, trouble);
}

const collecting = setInterval(collect, 50);
await Promise.all(["stalls", "hangs", "floods", "redirects"].map((trouble) => expectStatus(503, trouble)));
await expectStatus(401, "works");
await expectStatus(401, "resets");
clearInterval(collecting);
assert.equal(seen.filter((path) => path === "elsewhere").length, 0);
assert.equal(seen.filter((path) => path === "openid-configuration").length, 1);
process.exit();
