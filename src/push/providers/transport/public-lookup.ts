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
 * A look-up for `connectTcp`. It reads no hosts file. It fails with `ENOTFOUND` for a name that has no address of the
 * family, else with the code of the failure, such as `ETIMEOUT`.
 */
export function createPublicLookup(
  resolver = new Resolver({ timeout: timeoutMs, tries: 2 }),
): LookupFunction {
  return (hostname, { family }, callback) => {
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
