/** Whom a request is from, behind proxies that are trusted, and behind those that are not. */
import { IncomingMessage } from "node:http";
import { Socket } from "node:net";
import { expect, test } from "vitest";
import { createCallerAddress } from "../../../src/platform/door/caller-address.ts";
import { sampleHandlers, startSampleApi } from "../../support/sample-api.ts";

function addressOf(networks: readonly string[], peer: string | undefined, forwardedFor?: string) {
  const socket = Object.create(new Socket(), { remoteAddress: { value: peer } });
  const header = (name: string) => (name === "x-forwarded-for" ? forwardedFor : undefined);
  return createCallerAddress(networks)(new IncomingMessage(socket), header);
}

const proxies = ["10.0.0.0/8", "fd00::/8", "192.0.2.7"];

test.each([
  ["without proxies it is the connection's", [], "203.0.113.9", "198.51.100.1", "203.0.113.9"],
  ["a stranger names nobody", proxies, "203.0.113.9", "198.51.100.1", "203.0.113.9"],
  ["a proxy names its caller", proxies, "10.1.2.3", "198.51.100.1", "198.51.100.1"],
  ["of a chain of proxies too", proxies, "fd00::1", "198.51.100.1, 192.0.2.7,10.4.4.4", "198.51.100.1"],
  [
    "what the caller has written counts for nothing",
    proxies,
    "10.1.2.3",
    "1.2.3.4, 198.51.100.1",
    "198.51.100.1",
  ],
  ["a proxy that names nobody calls itself", proxies, "10.1.2.3", undefined, "10.1.2.3"],
  ["what is no address ends the chain", proxies, "10.1.2.3", "198.51.100.1, unknown, 10.4.4.4", "10.4.4.4"],
  ["ports are left out", proxies, "10.1.2.3", "198.51.100.1:4711", "198.51.100.1"],
  ["of IPv6 too", proxies, "10.1.2.3", "[2001:db8::1]:4711", "2001:db8::1"],
  ["IPv4 within IPv6 is IPv4", proxies, "::ffff:10.1.2.3", "::ffff:198.51.100.1", "198.51.100.1"],
  ["a connection that is gone has none", proxies, undefined, "198.51.100.1", undefined],
] as const)("%s", (_name, networks, peer, forwardedFor, expected) => {
  expect(addressOf(networks, peer, forwardedFor)).toBe(expected);
});

test("a handler learns it, behind a proxy that is trusted and behind one that is not", async () => {
  const of = async (networks: readonly string[]) => {
    await using cleanup = new AsyncDisposableStack();
    const api = await startSampleApi({
      callerAddress: createCallerAddress(networks),
      handlers: {
        ...sampleHandlers,
        getLatestItem: async (_request, { address }) => ({ status: 200, body: { address: address() } }),
      },
    });
    cleanup.defer(() => api.close());
    const headers = { "X-Forwarded-For": "198.51.100.1, 192.0.2.7" };
    return (await fetch(`${api.base}/v1/items/latest`, { headers })).json();
  };
  expect(await of(["127.0.0.0/8", "192.0.2.0/24"])).toEqual({ address: "198.51.100.1" });
  expect(await of(["10.0.0.0/8"])).toEqual({ address: "127.0.0.1" });
});
