/** Hosts and targets, as they are spelled in URLs. */
import { isIPv6 } from "node:net";

/** A host as it stands in front of a port. */
export function bracketed(host: string): string {
  return isIPv6(host) ? `[${host}]` : host;
}

/** An address to listen on, as the host of a URL that reaches it from this machine. */
export function urlHost(host: string): string {
  return host === "0.0.0.0" || host === "::" ? "127.0.0.1" : bracketed(host);
}

/** The path of a request's target. */
export function withoutQuery(target: string): string {
  const query = target.indexOf("?");
  return query < 0 ? target : target.slice(0, query);
}
