/** Hosts and request targets, as they are written in URLs. */
import { isIPv6 } from "node:net";

/** The host as it is written before a port: an IPv6 address in brackets. */
export function bracketed(host: string): string {
  return isIPv6(host) ? `[${host}]` : host;
}

/** The host of a URL that reaches a listening address from this machine. */
export function urlHost(host: string): string {
  return host === "0.0.0.0" || host === "::" ? "127.0.0.1" : bracketed(host);
}

/** A URL as a target, which names its host: the authority, and the rest. It has neither a user nor a fragment there. */
const absoluteForm = /^https?:\/\/([^/?#@\\]+)((?:[/?#].*)?)$/is;

/**
 * The one form of equal targets (RFC 3986 section 6.2.2): nothing is encoded without need, and an encoded slash stays
 * one.
 * @returns the path with its query and, of a URL, its authority, which replaces Host (RFC 9112 section 3.2.2)
 */
export function normalTarget(target: string) {
  const [, authority, rest = ""] = absoluteForm.exec(target) ?? [];
  const path = authority === undefined ? target : rest.replace(/^(?!\/)/, "/");
  const normal = path.replaceAll(/%[0-9a-f]{2}/gi, (encoded) => {
    const character = String.fromCharCode(Number.parseInt(encoded.slice(1), 16));
    return /[\w.~-]/.test(character) ? character : encoded.toUpperCase();
  });
  return { target: normal, authority };
}

export function withoutQuery(target: string): string {
  const query = target.indexOf("?");
  return query < 0 ? target : target.slice(0, query);
}
