/**
 * Looks up the hosts that clients name, by DNS alone. The system's look-up would keep a thread of Node's pool for as
 * long as a name server stays silent. The pool has four threads, for signatures and files as well.
 */
import { Resolver } from "node:dns/promises";
import type { LookupFunction } from "node:net";
import { codeOf } from "../../../platform/base/error-code.ts";

/** Milliseconds that a name server has to respond to the first query; DNS is queried twice. */
const timeoutMs = 2_000;

/**
 * A look-up for `net.connect`. It reads no hosts file. It fails with `ENOTFOUND` for a name that has no address, else
 * with the code of the failure, such as `ETIMEOUT`.
 * @param resolver its time limits hold for both families at once
 */
export function createPublicLookup(
  resolver = new Resolver({ timeout: timeoutMs, tries: 2 }),
): LookupFunction {
  async function addressesOf(hostname: string): Promise<{ address: string; family: 4 | 6 }[]> {
    const [ipv4, ipv6] = await Promise.allSettled([resolver.resolve4(hostname), resolver.resolve6(hostname)]);
    const addresses = [
      ...valuesOf(ipv4).map((address) => ({ address, family: 4 as const })),
      ...valuesOf(ipv6).map((address) => ({ address, family: 6 as const })),
    ];
    if (addresses.length > 0) return addresses;
    const codes = [ipv4, ipv6].map((result) => result.status === "rejected" && codeOf(result.reason));
    const failure = codes.find((code) => code !== "ENODATA" && code !== "ENOTFOUND");
    throw Object.assign(new Error("the host has no address"), { code: failure || "ENOTFOUND" });
  }

  return (hostname, { all, family }, callback) => {
    addressesOf(hostname).then(
      (addresses) => {
        const wanted = addresses.filter((one) =>
          family !== 4 && family !== 6 ? true : one.family === family,
        );
        const [first] = wanted;
        if (!first) return callback(Object.assign(new Error("no such address"), { code: "ENOTFOUND" }), "");
        if (all) callback(null, wanted);
        else callback(null, first.address, first.family);
      },
      (error) => callback(error, ""),
    );
  };
}

function valuesOf(result: PromiseSettledResult<string[]>): readonly string[] {
  return result.status === "fulfilled" ? result.value : [];
}
