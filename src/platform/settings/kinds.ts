/** Kinds of setting: Valibot schemas from the text to the value, with a description. No message quotes the text. */
import { isIP } from "node:net";
import * as v from "valibot";

/** The mode of the program. Production assumes and generates nothing. */
export type Environment = "development" | "production";

/** Begins the ids and keys that development mode generates, so that production can refuse them. */
export const generatedPrefix = "dev-";

/** A schema of text, or one for each environment. */
export type SettingKind<T> = TextSchema<T> | ((environment: Environment) => TextSchema<T>);

export type TextSchema<T> = v.GenericSchema<string, T>;

/** The value, or the problems of the text: phrases that follow the setting's name. */
type Parsed<T> = { readonly value: T } | { readonly problems: readonly string[] };

/** Parses the text of a setting. A problem inside a value begins with its path, as in `[1].scopes[0]`. */
export function parse<T>(kind: SettingKind<T>, text: string, environment: Environment): Parsed<T> {
  const result = v.safeParse(schemaOf(kind, environment), text, { abortPipeEarly: true });
  if (result.success) return { value: result.output };
  const problems = result.issues.map(({ path, message }) => `${pathOf(path)} ${message}`.trimStart());
  return { problems: [...new Set(problems)] };
}

export function expectationOf(kind: SettingKind<unknown>): string {
  return v.getDescription(schemaOf(kind, "production")) ?? "";
}

/** Marks a kind whose values may be secret or long, and must not be quoted in a problem. */
export function unquoted<T>() {
  return v.metadata<T, { readonly isQuotable: false }>({ isQuotable: false });
}

/** Whether a problem may show the text. */
export function isQuotable(kind: SettingKind<unknown>): boolean {
  return v.getMetadata(schemaOf(kind, "production"))["isQuotable"] !== false;
}

function schemaOf<T>(kind: SettingKind<T>, environment: Environment): TextSchema<T> {
  return typeof kind === "function" ? kind(environment) : kind;
}

/** A path in the syntax of JavaScript. */
function pathOf(path: readonly { readonly key: unknown }[] = []): string {
  const steps = path.map(({ key }) => {
    const name = String(key);
    if (typeof key === "number") return `[${name}]`;
    return /^\w{1,60}$/.test(name) ? `.${name}` : `[${JSON.stringify(name.slice(0, 60))}]`;
  });
  return steps.join("").replace(/^\./, "");
}

export function must(expects: string): string {
  return `must be ${expects}`;
}

export function checked(expects: string, fits: (text: string) => boolean) {
  return v.pipe(v.string(must(expects)), v.check(fits, must(expects)), v.description(expects));
}

export function matching(expects: string, pattern: RegExp) {
  return checked(expects, (text) => pattern.test(text));
}

/** Any text but the empty one, without control characters. */
export const plainText = matching("text without control characters", /^\P{Cc}+$/u);

/** A password: any text but the empty one, without control characters. */
export const password = matching("a password without control characters", /^\P{Cc}+$/u);

/** Refuses values for a reason. @param why the phrase that follows the setting's name; undefined for accepted values */
export function refusing<T>(why: (value: T) => string | undefined) {
  return v.rawCheck<T>(({ dataset, addIssue }) => {
    const message = dataset.typed ? why(dataset.value) : undefined;
    if (message !== undefined) addIssue({ message });
  });
}

/** A kind of which production refuses some values. @param why as in {@link refusing} */
export function stricterInProduction<T>(schema: TextSchema<T>, why: (value: T) => string | undefined) {
  return (environment: Environment): TextSchema<T> =>
    environment === "production" ? v.pipe(schema, refusing(why)) : schema;
}

/** A whole number, both ends included. */
export function integer(min: number, max: number) {
  const expects = `an integer from ${min} to ${max}`;
  return v.pipe(
    v.string(),
    v.regex(/^\d{1,15}$/, must(expects)),
    v.transform(Number),
    v.minValue(min, must(expects)),
    v.maxValue(max, must(expects)),
    v.description(expects),
  );
}

/** A TCP port to listen on; 0 is any free one. */
export const listenPort = integer(0, 65535);

/** A fixed TCP port, to connect to or to be reached at; 0 is refused. */
export const fixedPort = integer(1, 65535);

/** YES or NO, in any case. */
export const yesNo = v.pipe(
  v.string(),
  v.toUpperCase(),
  v.picklist(["YES", "NO"], must("YES or NO")),
  v.transform((text) => text === "YES"),
  v.description("YES or NO"),
);

/** One of a few words, in any case; the value is spelled as in the list. */
export function oneOf<const T extends string>(values: readonly T[]) {
  const expects = `one of ${values.join(", ")}`;
  const spelled = new Map<string, T>(values.map((value) => [value.toLowerCase(), value]));
  return v.pipe(
    v.string(),
    v.transform((text) => spelled.get(text.toLowerCase()) ?? text),
    v.picklist(values, must(expects)),
    v.description(expects),
  );
}

/** A host name or an IP address, without scheme and port. */
export const host = checked(
  "a host name or an IP address",
  (text) => isIP(text) !== 0 || (/^[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*$/i.test(text) && text.length < 254),
);

/** An address, or a network in CIDR notation, but not of all addresses. */
export const network = checked("an address or a network in CIDR notation, but not /0", (text) => {
  const [address = "", prefix, ...rest] = text.split("/");
  const family = isIP(address);
  const bits = family === 6 ? 128 : 32;
  return family !== 0 && rest.length === 0 && (prefix === undefined || v.is(integer(1, bits), prefix));
});

export interface HostAndPort {
  readonly host: string;
  readonly port: number | undefined;
}

/** A host name or an IP address, and after a colon a port; an IPv6 address with a port is in brackets. */
export const hostAndPort: TextSchema<HostAndPort> = (() => {
  const expects = "a host name or an IP address, with or without a port";
  return v.pipe(
    v.string(),
    v.rawTransform(({ dataset, addIssue, NEVER }) => {
      const [, bracketed, plain, port] =
        /^(?:\[([^[\]]+)\]|([^:[\]]+))(?::(\d+))?$/.exec(dataset.value) ?? [];
      const named = isIP(dataset.value) === 6 ? dataset.value : (bracketed ?? plain ?? "");
      const isHost = v.is(host, named) && (bracketed === undefined || isIP(bracketed) === 6);
      if (isHost && port === undefined) return { host: named, port: undefined };
      if (isHost && v.is(fixedPort, port)) return { host: named, port: Number(port) };
      addIssue({ message: must(expects) });
      return NEVER;
    }),
    v.description(expects),
  );
})();

/** Comma-separated values of one kind; spaces around them are ignored, and repetitions are removed. */
export function listOf<T>(item: TextSchema<T>, expects: string) {
  return v.pipe(
    v.string(),
    v.transform((text) => text.split(",").map((part) => part.trim())),
    v.array(item),
    v.transform((values): readonly T[] => [...new Set(values)]),
    v.description(expects),
  );
}

/** Different characters of a secret, at least. 16 random hexadecimal digits have fewer in one case of 30,000. */
const leastVariety = 6;

/** Why a secret is too easy to guess, or is an example of the documentation; undefined if it is neither. */
export function secretWeakness(secret: string): string | undefined {
  if (new Set(secret).size < leastVariety)
    return `must have at least ${leastVariety} different characters in production; openssl rand -hex 32 makes a good one`;
  return /example|change-?me|placeholder|at least 16 characters/i.test(secret)
    ? "must not be an example of the documentation; openssl rand -hex 32 makes a good one"
    : undefined;
}

/** A key that a service and its callers share. Development mode may generate it. */
export const sharedApiKey = stricterInProduction(
  matching("16 to 256 visible ASCII characters", /^[\x21-\x7e]{16,256}$/),
  (key) =>
    key.startsWith(generatedPrefix) ? "must not be a key made by development mode" : secretWeakness(key),
);
