/** Kinds of setting that are http and https URLs. All refuse a user name or a password. */
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

/** Whether a URL's host is a loopback host. */
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

/**
 * An issuer identifier (RFC 8414 section 2, OpenID Connect Discovery section 3). It is compared character
 * by character, so only the canonical spelling is accepted. Production accepts http only on a loopback host.
 */
export const issuerUrl = issuer(
  "an http or https URL without user, query, fragment and trailing slash",
  (text) => !text.endsWith("/"),
);

/** The issuer identifier of somebody else, which may end with a slash, as those of Auth0 do. */
export const foreignIssuerUrl = issuer("an http or https URL without user, query and fragment", () => true);
