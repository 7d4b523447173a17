/** The address of who sends a request, behind proxies too: of those that are trusted, each names who has called it. */
import { BlockList, isIP } from "node:net";
import type { NodeRequest } from "./responses.ts";

/**
 * IPv4 is written as such, also where a socket of IPv6 has taken it.
 * @returns undefined if the connection is gone
 */
export type CallerAddress = (
  request: NodeRequest,
  header: (name: string) => string | undefined,
) => string | undefined;

/**
 * The rightmost address of `X-Forwarded-For` that is no trusted proxy's: what stands left of it, the caller may have
 * written itself.
 * @param networks of the trusted proxies, in CIDR notation; none: the address is that of the connection
 */
export function createCallerAddress(networks: readonly string[]): CallerAddress {
  const trusted = new BlockList();
  for (const network of networks) {
    const [address = "", prefix] = network.split("/");
    const family = isIP(address) === 6 ? "ipv6" : "ipv4";
    trusted.addSubnet(address, Number(prefix ?? (family === "ipv6" ? 128 : 32)), family);
  }
  const isTrusted = (address: string) => trusted.check(address, isIP(address) === 6 ? "ipv6" : "ipv4");

  return (request, header) => {
    if ("stream" in request && request.stream.destroyed) return undefined;
    let address = plainAddress(request.socket.remoteAddress);
    if (networks.length === 0) return address;
    const named = header("x-forwarded-for")?.split(",") ?? [];
    while (address !== undefined && isTrusted(address)) {
      const before = plainAddress(named.pop());
      if (before === undefined) break;
      address = before;
    }
    return address;
  };
}

/** An address without port, zone and the spelling of IPv4 within IPv6; undefined if there is none. */
function plainAddress(text = ""): string | undefined {
  const host = text.trim().replace(/^\[([^\]]+)\](:\d+)?$|^([\d.]+):\d+$/, "$1$3");
  const address = host.replace(/%.*$/, "").replace(/^::ffff:(?=[\d.]+$)/i, "");
  return isIP(address) === 0 ? undefined : address;
}
