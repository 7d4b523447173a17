/**
 * Kinds of setting: how the text of a setting becomes a value, and what to say when it does not. A kind
 * says what it expects once; the same words go into the problem and into the documentation. No problem
 * that a kind reports may quote the text: settings.ts does so where the setting is not a secret.
 */
import { isIP } from "node:net";

/** Production assumes and generates nothing. */
export type Environment = "development" | "production";

/** Begins the ids and keys that development mode generates, so that production can refuse them. */
export const generatedPrefix = "dev-";

/** The value, or what is wrong with the text: phrases that follow the setting's name. */
export type Parsed<T> = { readonly value: T } | { readonly problems: readonly string[] };

export interface SettingKind<T> {
  /** What a value is, as in "an integer from 1 to 10". */
  readonly expects: string;
  /** False where a value may hold something secret or long, and must not be quoted in a problem. */
  readonly quotable: boolean;
  readonly parse: (text: string, environment: Environment) => Parsed<T>;
}

/** A kind whose problem is always the same: it must be what it expects. `decode` answers undefined for "no". */
function simpleKind<T>(expects: string, decode: (text: string) => T | undefined): SettingKind<T> {
  return {
    expects,
    quotable: true,
    parse: (text) => {
      const value = decode(text);
      return value === undefined ? { problems: [`must be ${expects}`] } : { value };
    },
  };
}

/** Text that matches the form. */
export function matching(expects: string, form: RegExp): SettingKind<string> {
  return simpleKind(expects, (text) => (form.test(text) ? text : undefined));
}

/** Any text but the empty one, without control characters. */
export const plainText = matching("text without control characters", /^\P{Cc}+$/u);

/** Text that only its owner may know; like {@link matching}, but never quoted. */
export function secretMatching(expects: string, form: RegExp): SettingKind<string> {
  return { ...matching(expects, form), quotable: false };
}

/**
 * A kind some of whose values production refuses.
 *
 * @param why what follows the setting's name for such a value, undefined for the others
 */
export function stricterInProduction<T>(
  kind: SettingKind<T>,
  why: (value: T) => string | undefined,
): SettingKind<T> {
  return {
    ...kind,
    parse: (text, environment) => {
      const parsed = kind.parse(text, environment);
      if (environment === "development" || "problems" in parsed) return parsed;
      const refusal = why(parsed.value);
      return refusal === undefined ? parsed : { problems: [refusal] };
    },
  };
}

/** A whole number, both ends included. */
export function integer(min: number, max: number): SettingKind<number> {
  return simpleKind(`an integer from ${min} to ${max}`, (text) => {
    if (!/^\d{1,15}$/.test(text)) return undefined;
    const value = Number(text);
    return value >= min && value <= max ? value : undefined;
  });
}

/** A TCP port to listen on; 0 is any free one. */
export const listenPort = integer(0, 65535);

/** A TCP port that others have to know: to connect to, or to be reached at. */
export const fixedPort = integer(1, 65535);

/** YES or NO, in any case. */
export const yesNo: SettingKind<boolean> = simpleKind("YES or NO", (text) => {
  const upper = text.toUpperCase();
  return upper === "YES" ? true : upper === "NO" ? false : undefined;
});

/** One of a few words, in any case; the value is spelled as in the list. */
export function oneOf<const T extends string>(values: readonly T[]): SettingKind<T> {
  return simpleKind(`one of ${values.join(", ")}`, (text) =>
    values.find((value) => value === text.toLowerCase()),
  );
}

/** A host name or an IP address, without scheme and port. */
export const host: SettingKind<string> = simpleKind("a host name or an IP address", (text) =>
  isIP(text) !== 0 || (/^[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*$/i.test(text) && text.length < 254)
    ? text
    : undefined,
);

/** Comma-separated values of one kind; spaces around them and repetitions do not matter. */
export function listOf<T>(item: SettingKind<T>, expects: string): SettingKind<readonly T[]> {
  return {
    expects,
    quotable: item.quotable,
    parse: (text, environment) => {
      const values = new Set<T>();
      const problems: string[] = [];
      for (const [index, part] of text.split(",").entries()) {
        const parsed = item.parse(part.trim(), environment);
        if ("value" in parsed) values.add(parsed.value);
        else problems.push(...parsed.problems.map((problem) => `[${index}] ${problem}`));
      }
      return problems.length > 0 ? { problems } : { value: [...values] };
    },
  };
}

const webScheme = /^https?:\/\/[^/\\]/i;
/** The URL parser lets through more, a wildcard for one. */
const urlHostname = /^([a-z0-9._-]+|\[[0-9a-f:.]+\])$/;

/** `text` as an absolute http or https URL without user name and password. */
function webUrl(text: string): URL | undefined {
  const url = URL.parse(text);
  if (url === null || !webScheme.test(text) || !urlHostname.test(url.hostname)) return undefined;
  return url.username === "" && url.password === "" ? url : undefined;
}

/** The origin of a web page, as browsers send it in `Origin`. */
export const origin: SettingKind<string> = simpleKind("an origin such as https://app.example.com", (text) =>
  webUrl(text)?.origin === text ? text : undefined,
);

/** Where a service is reached, to which paths are appended: no query, no fragment; a trailing slash is dropped. */
export const baseUrl: SettingKind<string> = simpleKind(
  "an http or https URL without user, query and fragment",
  (text) => {
    const url = webUrl(text);
    return url === undefined || /[?#]/.test(text) ? undefined : url.href.replace(/\/+$/, "");
  },
);

/** Whether a URL's host is this machine, as seen from itself. */
export function isLoopback(url: URL): boolean {
  return /^(localhost|.+\.localhost|127(\.\d+){3}|\[::1\])$/.test(url.hostname);
}

const issuerSpelling: SettingKind<string> = {
  expects: "an http or https URL without user, query, fragment and trailing slash",
  quotable: true,
  parse: (text) => {
    const url = webUrl(text);
    if (url === undefined || /[?#]|\/$/.test(text))
      return { problems: [`must be ${issuerSpelling.expects}`] };
    const canonical = url.href.replace(/\/$/, "");
    return canonical === text ? { value: text } : { problems: [`must be spelled ${canonical}`] };
  },
};

/**
 * An issuer identifier (RFC 8414 section 2, OpenID Connect Discovery section 3). It is compared character
 * by character, so only the canonical spelling is taken. Production takes http only on a loopback host.
 */
export const issuerUrl = stricterInProduction(issuerSpelling, (text) => {
  const url = new URL(text);
  return url.protocol === "https:" || isLoopback(url) ? undefined : "must begin with https in production";
});
