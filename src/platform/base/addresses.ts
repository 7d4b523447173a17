/** Hosts, as they are written in URLs. */
import { isIPv6 } from "node:net";

/** The host as it is written before a port: an IPv6 address in brackets. */
export function bracketed(host: string): string {
  return isIPv6(host) ? `[${host}]` : host;
}

/** The host of a URL that reaches a listening address from this machine. */
export function urlHost(host: string): string {
  return host === "0.0.0.0" || host === "::" ? "127.0.0.1" : bracketed(host);
}
