/** Looks up hosts by DNS, as the system's look-up keeps a thread of Node's pool while a name server stays silent. */
import { lookup as systemLookup } from "node:dns";
import { Resolver } from "node:dns/promises";
import { readFile } from "node:fs";
import type { LookupFunction } from "node:net";
import { codeOf } from "../base/error-code.ts";

/** Milliseconds that a name server has to respond to the first query; DNS is queried twice. */
const timeoutMs = 2_000;

/**
 * A look-up for `connectTcp` of hosts that clients name; without a hosts file. Fails with `ENOTFOUND` for a name that
 * has no address of the family, else with the code of the failure, such as `ETIMEOUT`.
 */
export function createPublicLookup(given?: Resolver): LookupFunction {
  return (hostname, { family }, callback) => {
    // A new one knows the name servers of now.
    const resolver = given ?? new Resolver({ timeout: timeoutMs, tries: 2 });
    const wanted = family === 6 ? 6 : 4;
    const found = wanted === 6 ? resolver.resolve6(hostname) : resolver.resolve4(hostname);
    found.then(
      (addresses) =>
        callback(
          null,
          addresses.map((address) => ({ address, family: wanted })),
        ),
      (error) =>
        callback(codeOf(error) === "ENODATA" ? Object.assign(error, { code: "ENOTFOUND" }) : error, []),
    );
  };
}

/**
 * A look-up for `connectTcp` of hosts that the settings name. A name in the hosts file has the addresses there alone;
 * the system looks up what has no dot, and what DNS does not find.
 */
export function createConfiguredLookup(resolver?: Resolver, hostsFile = "/etc/hosts"): LookupFunction {
  const lookUp = createPublicLookup(resolver);
  return (hostname, options, callback) =>
    readFile(hostsFile, "utf8", (_, hosts = "") => {
      const isListed = hosts.toLowerCase().split(/\s+/).includes(hostname);
      const bySystem = () => systemLookup(hostname, isListed ? { all: true } : options, callback);
      if (isListed || !hostname.includes(".")) return bySystem();
      lookUp(hostname, options, (error, found) =>
        error && error.code !== "ETIMEOUT" ? bySystem() : callback(error, found),
      );
    });
}

/** The one that connections use unless they are given another. */
export const configuredLookup = createConfiguredLookup();
