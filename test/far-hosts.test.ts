/** How long a host may take to accept a connection, where Node itself chooses among the addresses of the host. */
import { once } from "node:events";
import { createServer } from "node:http";
import { expect, test } from "vitest";
import { fetchJson } from "../src/push/callers/discovery.ts";
import { startAuthServer } from "./support/auth-server.ts";
import { finding, replaceLookup, startBusyServer } from "./support/busy-server.ts";
import { stopwatch } from "./support/stopwatch.ts";
import { suiteCleanup } from "./support/suite-cleanup.ts";

const cleanup = suiteCleanup();

test("an address of an issuer is given half a second before its next one is tried", async () => {
  const auth = await startAuthServer("PGlite");
  cleanup.defer(() => auth.stop());
  const port = await startBusyServer(cleanup, "http", 60_000);
  const server = createServer((_, response) => response.end("{}")).listen(port, "127.0.0.2");
  cleanup.defer(() => void server.close());
  await once(server, "listening");
  replaceLookup(finding("127.0.0.1", "127.0.0.2"));
  const waited = stopwatch();
  expect(await fetchJson(`http://far.example:${port}/`)).toEqual({});
  expect(waited()).toBeGreaterThan(490);
  expect(waited()).toBeLessThan(1_500);
});
