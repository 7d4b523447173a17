/** The relay as it runs in a process: which parts of the outbox it relays when, and what it does after a failure. */
import { randomUUID } from "node:crypto";
import type { Logger } from "pino";
import { isDatabaseAway } from "../base/database-errors.ts";
import { type Loop, startLoop } from "../base/loop.ts";
import { Reminders } from "../base/reminders.ts";
import { OutboxStart } from "./outbox-start.ts";
import { outboxParts } from "./outbox-table.ts";
import { batchSize, flush, type RelaySettings, relayOnce } from "./relay.ts";
import type { Subscriber } from "./subscribers.ts";

interface LoopSettings extends RelaySettings {
  readonly logger: Logger;
  /** Called with the number of events that were delivered and removed from the outbox. */
  readonly delivered?: (count: number) => void;
  /** Milliseconds between looks at an outbox that was empty; a second unless given. */
  readonly intervalMs?: number;
}

/** The longest pause between tries, in milliseconds. */
const longestPauseMs = 15_000;

interface Part {
  readonly number: number;
  failures: number;
  /** The moment of the next try, by `performance.now`. */
  dueAt: number;
}

/** Relays until stopped. A failure is logged, and its part tried again after a growing pause. */
export function startRelay(given: LoopSettings): Loop {
  const { start = new OutboxStart(), intervalMs = 1_000 } = given;
  const settings = { ...given, start };
  const { db, outbox, subscribers, logger, inParts = false } = settings;
  const count = inParts ? outboxParts : 1;
  const parts: Part[] = Array.from({ length: count }, (_, number) => ({
    number,
    failures: 0,
    dueAt: 0,
  }));
  const holder = randomUUID();
  let hasUnknown = false;
  let reminders = new Reminders();
  const warn = (err: unknown) => logger.warn({ err }, "Events could not be delivered and will be retried");

  /** @returns the error, if it failed */
  async function relay(part: Part): Promise<unknown> {
    try {
      const delivered = await relayOnce(settings, part.number, holder);
      settings.delivered?.(delivered);
      part.failures = 0;
      part.dueAt = performance.now() + (delivered === batchSize ? 0 : intervalMs);
      return undefined;
    } catch (error) {
      part.failures = isDatabaseAway(error) ? 0 : part.failures + 1;
      part.dueAt = performance.now() + Math.min(intervalMs * 2 ** part.failures, longestPauseMs);
      return error;
    }
  }

  /** The parts in which events wait. Rejects while the database or a subscriber is away. */
  async function waitingParts(): Promise<readonly number[]> {
    const waiting = await start.look(db, outbox, subscribers, count);
    const isUnknown = waiting.isAny && waiting.parts.length === 0;
    if (isUnknown && !hasUnknown)
      logger.warn(
        "Events of a newer version wait in the outbox until a process of that version delivers them",
      );
    hasUnknown = isUnknown;
    if (waiting.parts.length > 0) await flush(subscribers);
    return waiting.parts;
  }

  /** @returns the first error: what fails for one part mostly fails for all of them, and is logged once */
  async function relayDue(due: readonly Part[], stopping: AbortSignal): Promise<unknown> {
    let first: unknown;
    for (const part of due) {
      if (stopping.aborted) break;
      const error = await relay(part);
      first ??= error;
      // If nothing can be delivered, each further part would take as long to fail, and hold its lease meanwhile.
      if (error !== undefined && !(await isThere(subscribers))) break;
    }
    return first;
  }

  return startLoop(async (stopping) => {
    let waiting: readonly number[];
    try {
      waiting = await waitingParts();
      reminders = new Reminders();
    } catch (err) {
      if (reminders.isFailureDue(err)) warn(err);
      for (const part of parts) Object.assign(part, { failures: 0, dueAt: 0 });
      return intervalMs;
    }
    // The processes begin with different parts.
    parts.unshift(...parts.splice(Math.floor(Math.random() * count)));
    const due = parts.filter(({ number, dueAt }) => waiting.includes(number) && dueAt <= performance.now());
    const failure = await relayDue(due, stopping);
    if (failure !== undefined) warn(failure);
    return due.some(({ dueAt }) => dueAt <= performance.now()) ? 0 : intervalMs;
  });
}

const isThere = (subscribers: readonly Subscriber[]): Promise<boolean> =>
  flush(subscribers).then(
    () => true,
    () => false,
  );
