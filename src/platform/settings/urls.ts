/** Kinds of setting that are http and https URLs. All refuse a user name or a password. */
import { BlockList, isIP } from "node:net";
import * as v from "valibot";
import { checked, stricterInProduction, type TextSchema } from "./kinds.ts";

const webScheme = /^https?:\/\/[^/\\]/i;
/** Stricter than the URL parser, which accepts a wildcard, for example. */
const urlHostname = /^([a-z0-9._-]+|\[[0-9a-f:.]+\])$/;

/** `text` as an absolute http or https URL without user name and password. */
function webUrl(text: string): URL | undefined {
  const url = URL.parse(text);
  if (url === null || !webScheme.test(text) || !urlHostname.test(url.hostname)) return undefined;
  return url.username === "" && url.password === "" ? url : undefined;
}

/** The origin of a web page, as browsers send it in `Origin`. */
export const origin = checked(
  "an origin such as https://app.example.com",
  (text) => webUrl(text)?.origin === text,
);

/** An http or https URL as it is written, without user, query and fragment. */
export function urlWithoutQuery(expects: string, fits: (url: URL) => boolean = () => true) {
  return checked(expects, (text) => {
    const url = webUrl(text);
    return url !== undefined && !/[?#]/.test(text) && fits(url);
  });
}

const baseExpects = "an http or https URL without user, query and fragment";
const trimmed = v.transform((text: string) => new URL(text).href.replace(/\/+$/, ""));

/** The base URL of a service, to which paths are appended; a trailing slash is dropped. */
export const baseUrl = v.pipe(urlWithoutQuery(baseExpects), trimmed);

/** The URL of a service without a path, as for gRPC. */
export const serverUrl = v.pipe(
  urlWithoutQuery("an http or https URL without a path, such as http://auth.internal:9090", ({ pathname }) =>
    /^\/+$/.test(pathname),
  ),
  trimmed,
);

/** An https URL; development accepts http too. */
export function secure(schema: TextSchema<string>) {
  return stricterInProduction(schema, (url) =>
    url.startsWith("https:") ? undefined : "must begin with https in production",
  );
}

/** This host, RFC 1918, RFC 6598, RFC 3927, RFC 4193, RFC 4291: addresses that no packet from the internet reaches. */
const privateAddresses = new BlockList();
for (const [network, prefix] of [
  ["0.0.0.0", 8],
  ["10.0.0.0", 8],
  ["100.64.0.0", 10],
  ["169.254.0.0", 16],
  ["172.16.0.0", 12],
  ["192.168.0.0", 16],
] as const) {
  privateAddresses.addSubnet(network, prefix);
}
privateAddresses.addSubnet("fc00::", 7, "ipv6");
privateAddresses.addSubnet("fe80::", 10, "ipv6");

/** Names without a dot, as in compose files, and names that no public resolver knows. */
const privateName = /^[^.]+$|\.(internal|local|localdomain|lan|intranet|private|svc|home\.arpa)$/;

/** Whether no packet from the internet reaches a URL's host. */
export function isPrivate(url: URL): boolean {
  const host = url.hostname.replace(/^\[|\]$/g, "");
  const family = isIP(host);
  if (family !== 0) return isLoopback(url) || privateAddresses.check(host, family === 4 ? "ipv4" : "ipv6");
  return isLoopback(url) || privateName.test(host);
}

/** A URL to which secrets are sent: production accepts http only inside a private network. */
export function confidential(schema: TextSchema<string>) {
  return stricterInProduction(schema, (text) => {
    const url = new URL(text);
    return url.protocol === "https:" || isPrivate(url)
      ? undefined
      : "must begin with https in production, as its host is public";
  });
}

export function isLoopback(url: URL): boolean {
  return /^(localhost|.+\.localhost|127(\.\d+){3}|\[::1\])$/.test(url.hostname);
}

/** The URL parser's spelling, with a slash at its end only if the text has one. */
function canonical(text: string): string {
  const { href } = new URL(text);
  return text.endsWith("/") ? href : href.replace(/\/$/, "");
}

function issuer(expects: string, fits: (text: string) => boolean) {
  const spelled = v.pipe(
    checked(expects, (text) => webUrl(text) !== undefined && !/[?#]/.test(text) && fits(text)),
    v.check(
      (text) => canonical(text) === text,
      ({ input }) => `must be spelled ${canonical(input)}`,
    ),
  );
  return stricterInProduction(spelled, (text) => {
    const url = new URL(text);
    return url.protocol === "https:" || isLoopback(url) ? undefined : "must begin with https in production";
  });
}

/** An issuer identifier (RFC 8414 section 2), spelled canonically. Production takes http on a loopback host only. */
export const issuerUrl = issuer(
  "an http or https URL without user, query, fragment and trailing slash",
  (text) => !text.endsWith("/"),
);

/** The issuer identifier of somebody else, which may end with a slash, as those of Auth0 do. */
export const foreignIssuerUrl = issuer("an http or https URL without user, query and fragment", () => true);
