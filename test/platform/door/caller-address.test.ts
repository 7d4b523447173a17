/** Whom a request is from, behind proxies that are trusted, and behind those that are not. */
import { IncomingMessage } from "node:http";
import { Socket } from "node:net";
import { expect, test } from "vitest";
import { createCallerAddress } from "../../../src/platform/door/caller-address.ts";

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
