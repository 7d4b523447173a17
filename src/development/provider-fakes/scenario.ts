/**
 * A scenario: which requests to a fake it applies to, and what happens to them. Owns the format of a scenario and
 * parses it from JSON, strictly, so that a scenario with a typing error is refused and not silently ignored.
 */

/** Failures other than a response. */
const faults = [
  /** The request gets no response; the message is not recorded. */
  "timeout",
  /** The request ends without a response (HTTP/2: RST_STREAM); the message is not recorded. */
  "reset",
  /** The same as `reset`, but the message is recorded: the sender cannot know that it was delivered. */
  "reset-after-accept",
  /** The connection is cut, with every request on it; the message is not recorded. */
  "disconnect",
  /** The same as `disconnect`, but the message is recorded. */
  "disconnect-after-accept",
  /**
   * HTTP/2 GOAWAY. With code 0, the default, the message is accepted and open requests finish; with another
   * code it is not recorded, and the connection ends.
   */
  "goaway",
  /** All connections are cut and none is accepted, until the scenario ends. Applies to all requests. */
  "refuse-connections",
] as const;

type Fault = (typeof faults)[number];

/** A response that is no row of the provider's table. */
interface CustomResponse {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

/**
 * What to play, and for which requests. A scenario applies to requests that meet all the conditions given; without
 * a condition to all requests, until it is stopped. It does not apply to an invalid request: that gets the
 * provider's error response.
 */
export interface Scenario<Row extends string = string> {
  /** Only tokens that begin with it. */
  readonly tokenPrefix?: string;
  /** Only tokens that match: the source of a regular expression. */
  readonly tokenPattern?: string;
  /** Only this share of tokens or requests (see `shareOf`), from 0 to 1. */
  readonly share?: number;
  /** A share of `tokens`, chosen by hash and always the same, or of `requests`, at random (the default). */
  readonly shareOf?: "tokens" | "requests";
  /** Only the next so many requests. */
  readonly times?: number;
  /** Only for so many seconds from now. */
  readonly seconds?: number;
  /** Only until this time: ISO 8601. */
  readonly until?: string;
  /** FCM: whether it applies to messages (the default) or to the OAuth token endpoint. */
  readonly on?: "messages" | "token";

  /** The response: the name of a row of the provider's table, or a custom one. The message is not recorded. */
  readonly answer?: Row | CustomResponse;
  /** The connection breaks in the middle of the response's body. */
  readonly cut?: boolean;
  /** `Retry-After` of the response: seconds, or an HTTP date. */
  readonly retryAfter?: number | string;
  /** APNs, with status 410: since when the token is invalid, in milliseconds since the epoch. Now by default. */
  readonly timestamp?: number;
  /** A fault instead of a response. */
  readonly fault?: Fault;
  /** With `goaway`: the HTTP/2 error code; 0 by default. */
  readonly code?: number;
  /** With `goaway`: its reason. */
  readonly reason?: string;
  /** Milliseconds before the response or fault. Alone: the message is recorded at once, and its response is delayed. */
  readonly delayMs?: number;
}

const members = {
  tokenPrefix: "string",
  tokenPattern: "string",
  share: "number",
  shareOf: ["tokens", "requests"],
  times: "number",
  seconds: "number",
  until: "string",
  on: ["messages", "token"],
  answer: "any",
  cut: "boolean",
  retryAfter: "any",
  timestamp: "number",
  fault: faults,
  code: "number",
  reason: "string",
  delayMs: "number",
} as const satisfies Record<keyof Scenario, string | readonly string[]>;

/**
 * Parses a scenario.
 * @param rows the names of the provider's responses
 * @throws TypeError that says what is wrong
 */
export function readScenario(value: unknown, rows: readonly string[]): Scenario {
  if (!isObject(value)) throw new TypeError("A scenario is a JSON object.");
  for (const [name, member] of Object.entries(value)) checkMember(name, member);
  const scenario = value as Scenario;
  checkResponse(scenario.answer, rows);
  checkRanges(scenario);
  checkPlays(scenario);
  return scenario;
}

function checkMember(name: string, member: unknown): void {
  if (!Object.hasOwn(members, name)) {
    throw new TypeError(`A scenario has no ${name}; it has ${Object.keys(members).join(", ")}.`);
  }
  const kind: string | readonly string[] = members[name as keyof typeof members];
  if (typeof kind === "string") {
    const isKind = kind === "any" || typeof member === kind;
    if (!isKind) throw new TypeError(`${name} is a ${kind}.`);
  } else if (!kind.some((one) => one === member)) {
    throw new TypeError(`${name} is one of ${kind.join(", ")}.`);
  }
}

function checkResponse(answer: unknown, rows: readonly string[]): void {
  if (answer === undefined || (typeof answer === "string" && rows.includes(answer))) return;
  const status = isObject(answer) ? answer["status"] : undefined;
  if (typeof status === "number" && status >= 200 && status <= 599) return;
  throw new TypeError(`answer is one of ${rows.join(", ")}, or an object with a status.`);
}

function checkRanges({ share, times, seconds, until, delayMs, tokenPattern, retryAfter }: Scenario): void {
  if (share !== undefined && !(share >= 0 && share <= 1)) throw new TypeError("share is from 0 to 1.");
  if (times !== undefined && !(Number.isInteger(times) && times > 0)) {
    throw new TypeError("times is a positive integer.");
  }
  if (seconds !== undefined && !(seconds > 0)) throw new TypeError("seconds is greater than 0.");
  if (until !== undefined && Number.isNaN(Date.parse(until)))
    throw new TypeError("until is an ISO 8601 time.");
  if (delayMs !== undefined && !(delayMs >= 0)) throw new TypeError("delayMs is not negative.");
  if (retryAfter !== undefined && typeof retryAfter !== "number" && typeof retryAfter !== "string") {
    throw new TypeError("retryAfter is a number of seconds or an HTTP date.");
  }
  if (tokenPattern === undefined) return;
  try {
    new RegExp(tokenPattern);
  } catch {
    throw new TypeError("tokenPattern is no regular expression.");
  }
}

function checkPlays(scenario: Scenario): void {
  const { answer, fault, delayMs } = scenario;
  if (answer === undefined && fault === undefined && delayMs === undefined) {
    throw new TypeError("A scenario needs an answer, a fault or a delayMs.");
  }
  if (scenario.cut && answer === undefined) throw new TypeError("cut needs an answer.");
  if (answer !== undefined && fault !== undefined)
    throw new TypeError("answer and fault exclude each other.");
  const { tokenPrefix, tokenPattern, share, times, on } = scenario;
  const chosen = [tokenPrefix, tokenPattern, share, times, on, delayMs].some((one) => one !== undefined);
  if (fault === "refuse-connections" && chosen) {
    throw new TypeError(
      "refuse-connections applies to all requests: it takes seconds or until, or is stopped.",
    );
  }
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
