/** Keeps secrets and personal data out of log lines: by keys, by the fields of errors, by patterns in the line. */
import { types } from "node:util";
import { ServiceError } from "../base/errors.ts";

const redacted = "[Redacted]";
const maxDepth = 8;
const maxItems = 100;
const maxText = 8192;

/** Keys are compared in lower case and without `-`, `_` and spaces: access_token, accessToken, X-Api-Key. */
const secretKey =
  /^(?:code|otp|pin|credentials?)$|(?:assertion|password|passphrase|secrets?|tokens?|cookies?|apikey|authorization|privatekey|(?:otp|verification|authorization|onetime)code)$/;
const phoneKey = /(?:phone|phonenumber|msisdn|username)$/;
/** Matches national and padded spellings too, but no e-mail address and no id. */
const phonePattern = /^\s*\+?[\d\s()./-]{5,32}$/;
/** ITU country codes: one digit (1, 7), two digits by list, else three. */
const countryPrefix = /^\+(?:1|7|2[07]|3[0-469]|4[013-9]|5[1-8]|6[0-6]|8[1246]|9[0-58]|\d{3})/;

/** The phone number with only its country prefix and last two digits; other text has its digits hidden. */
function maskPhone(text: string): string {
  const number = text.replace(/[^\d+]/g, "");
  if (!phonePattern.test(text) || number.length < 5) return redacted;
  return `${countryPrefix.exec(number)?.[0] ?? ""}***${number.slice(-2)}`;
}

/** A value as it may be logged: copied without secrets, errors by {@link loggableError}, of other objects the class. */
export function loggable(value: unknown): unknown {
  try {
    return loggableValue("", value, 0);
  } catch {
    // A getter or a proxy threw. Logging itself must never throw.
    return "[Unreadable]";
  }
}

function loggableValue(key: string, value: unknown, depth: number): unknown {
  if (value === null || value === undefined || typeof value === "boolean") return value;
  if (isError(value)) return loggableError(value, depth);
  const name = key.replace(/[-_\s]/g, "").toLowerCase();
  if (secretKey.test(name)) return redacted;
  if (phoneKey.test(name) && typeof value !== "object") return loggablePhone(name, String(value));
  if (typeof value === "string") {
    return value.length > maxText ? `${value.slice(0, maxText)}… (${value.length} characters)` : value;
  }
  if (typeof value === "number") return value;
  return typeof value === "object" ? loggableObject(key, value, depth) : String(value).slice(0, maxText);
}

function loggablePhone(name: string, text: string): string {
  return name.endsWith("username") && !phonePattern.test(text) ? text : maskPhone(text);
}

function loggableObject(key: string, value: object, depth: number): unknown {
  if (depth >= maxDepth) return "[Deeper]";
  // The key of an array applies to its items.
  if (Array.isArray(value))
    return value.slice(0, maxItems).map((item) => loggableValue(key, item, depth + 1));
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? "[Invalid Date]" : value.toISOString();
  if (value instanceof URL) return value.origin + value.pathname;
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) return `[${value.constructor.name}]`;
  const copy: Record<string, unknown> = {};
  for (const [name, member] of Object.entries(value).slice(0, maxItems)) {
    if (name !== "__proto__") copy[name] = loggableValue(name, member, depth + 1);
  }
  return copy;
}

function isError(value: unknown): value is Error {
  return value instanceof Error || types.isNativeError(value);
}

/** The fields of an error that are logged: none that may contain a value, such as query, parameters, detail, where. */
const errorFields = [
  ...["code", "status", "statusCode", "errno", "syscall", "address", "port", "hostname"],
  ...["severity", "routine", "schema", "schema_name", "table", "table_name"],
  ...["column", "column_name", "constraint", "constraint_name"],
];

/** An error as it may be logged: type, message without values, stack frames, the known harmless fields, causes. */
function loggableError(error: Error, depth = 0): Record<string, unknown> {
  const fields = new Map<string, unknown>();
  for (const name of errorFields) {
    const value: unknown = Reflect.get(error, name);
    if (typeof value === "string" || typeof value === "number") fields.set(name, value);
  }
  const logged: Record<string, unknown> = {
    type: error.name === "Error" ? error.constructor.name : String(error.name),
    message: safeMessage(error, fields),
    ...(error instanceof ServiceError && { kind: error.kind.code }),
    ...Object.fromEntries(fields),
    stack: framesOf(error),
  };
  if (depth >= maxDepth) return logged;
  if (error.cause !== undefined) logged["cause"] = loggableCause(error.cause, depth);
  if (error instanceof AggregateError) {
    logged["errors"] = error.errors.slice(0, maxItems).map((each: unknown) => loggableCause(each, depth));
  }
  return logged;
}

/** A thrown value that is not an error may contain anything, so only its type is logged. */
function loggableCause(cause: unknown, depth: number): unknown {
  return isError(cause) ? loggableError(cause, depth + 1) : `[${typeof cause}]`;
}

/** Messages of other libraries that quote their input, and their replacements. */
const quotingMessages: readonly (readonly [RegExp, string])[] = [
  [/is not valid JSON$/, "The text is not valid JSON"],
  [/is an invalid header value\.?$/, "A header value is not valid"],
  [/^Failed query: /, "The query failed"],
];

/** SQLSTATE classes whose messages name tables, constraints and users, but quote no data. */
const dataFreeStates = /^(?:08|0A|23|25|28|3D|3F|40|42|53|54|55|57|58)/;

function safeMessage(error: Error, fields: ReadonlyMap<string, unknown>): string {
  const message = String(error.message);
  if ("query" in error && "params" in error && !fields.has("severity")) return "The query failed";
  for (const [pattern, replacement] of quotingMessages) if (pattern.test(message)) return replacement;
  const code = fields.get("code");
  if (fields.has("severity") && typeof code === "string") {
    if (code.startsWith("P0")) return "Raised by a function of the database";
    // From the first quote to the last: a quoted value may itself hold quotes.
    if (!dataFreeStates.test(code)) return message.replace(/".*"/s, '"…"');
  }
  return message.slice(0, maxText);
}

/** The stack frames without the message, which may be any text: only lines that match a frame are kept. */
function framesOf(error: Error): string {
  const stack = String(error.stack);
  const message = String(error.message);
  const start = stack.indexOf(message);
  return (start < 0 ? stack : stack.slice(start + message.length))
    .split("\n")
    .filter((line) => /^\s+at .*(?::\d+:\d+\)?|\((?:native|<anonymous>|index \d+)\))$/.test(line))
    .join("\n");
}

/** Where a word may begin in JSON text: not after a word character, unless that ends an escape such as `\n`. */
const wordStart = /(?<![\w-])|(?<=\\[bfnrt])/.source;
const secretPatterns: readonly (readonly [RegExp, string])[] = [
  [new RegExp(`(?:${wordStart})eyJ[\\w-]{8,}(?:\\.[\\w-]*)+`, "g"), redacted],
  [/\b([Bb]earer|[Bb]asic|DPoP) +[\w.~+/=-]{16,}/g, `$1 ${redacted}`],
  [/(\/\/[^\s"/@:]*:)[^\s"/@]+@/g, `$1${redacted}@`],
  [
    /([?&"](?:[\w.-]*(?:token|password|secret|api[_-]?key|assertion)|code|otp|phone|username)=)[^&\s"\\#]+/gi,
    `$1${redacted}`,
  ],
];
const phoneInText = /(?:\+|%2[Bb])([1-9]\d{6,14})(?!\d)/g;

/** Matches every line that one of the patterns below can match, and is much faster: most lines need no other search. */
const suspicious = /eyJ|[Bb]earer |[Bb]asic |DPoP |\/\/|=|\+[1-9]|%2[Bb]/;

/** The last resort: replaces text of a finished line that looks like a token, a credential or a phone number. */
export function redactLine(line: string): string {
  if (!suspicious.test(line)) return line;
  let text = line;
  for (const [pattern, replacement] of secretPatterns) text = text.replace(pattern, replacement);
  return text.replace(phoneInText, (_match, digits: string) => maskPhone(`+${digits}`));
}
