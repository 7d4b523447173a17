/**
 * Outages of a database, logged once for all who meet them: at the begin, each minute, by objection, and at the end.
 */
import { causes, codeMatching, isDatabaseAway } from "./database-errors.ts";

/** Milliseconds between two lines of an outage that lasts. */
const reminderMs = 60_000;
/** Milliseconds of success after which an outage is over: more than a statement takes to fail. */
const calmMs = 10_000;

/** Of a caller that found all connections in use: others use the database. */
const busy = /^CONNECTION_BUSY/;

/** Codes of all errors but those that only say that no server is there. */
const objections = /^(?!E|57P|CONNECT_TIMEOUT|CONNECTION_CLOSED|CONNECTION_NO_PRIMARY)/;

/** Marks an error that was reported. A member, so that copies of the error have it. */
const mark = Symbol("of an outage");

/** Whether the error, or one of its causes, was reported as that of an outage, so that it needs no line of its own. */
export function isOfOutage(thrown: unknown): boolean {
  return [...causes(thrown)].some((error) => mark in error);
}

export class Outage {
  readonly #log: (durationMs: number, error?: unknown) => void;
  readonly #now: () => number;
  #since: number | undefined;
  /** The first success after the last failure. */
  #endedAt: number | undefined;
  /** By what the server objects to: when the next line is due. */
  readonly #dueAt = new Map<string | undefined, number>();

  /** @param log writes a line, with the error while the outage lasts @param now milliseconds since any fixed point */
  constructor(log: (durationMs: number, error?: unknown) => void, now = () => performance.now()) {
    this.#log = log;
    this.#now = now;
  }

  /** Does work with the database, and takes note of its success, or of an error that means that it is away. */
  async noting<T>(work: () => Promise<T>): Promise<T> {
    try {
      const result = await work();
      if (this.#since !== undefined) this.#succeeded(this.#since);
      return result;
    } catch (error) {
      if (isDatabaseAway(error) && codeMatching(error, busy) === undefined) this.#failed(error);
      throw error;
    }
  }

  #failed(error: unknown): void {
    for (const one of causes(error)) Object.assign(one, { [mark]: true });
    const now = this.#now();
    this.#endedAt = undefined;
    this.#since ??= now;
    const objection = codeMatching(error, objections);
    if (now < (this.#dueAt.get(objection) ?? 0)) return;
    this.#dueAt.set(objection, now + reminderMs);
    this.#log(Math.round(now - this.#since), error);
  }

  #succeeded(since: number): void {
    const now = this.#now();
    this.#endedAt ??= now;
    if (now - this.#endedAt < calmMs) return;
    this.#log(Math.round(this.#endedAt - since));
    this.#since = undefined;
    this.#dueAt.clear();
  }
}
