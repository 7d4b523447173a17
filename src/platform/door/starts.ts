/** Starts few requests at a time: of a thousand begun together, the objects would outlive V8's young generation. */
import { type Priority, priorities } from "../base/priority.ts";

/** Requests that are started in one turn of the event loop. */
const perTurn = 64;
/** Of these, at least so many of each priority if they wait, so that a lower one goes on beside a higher one. */
const perPriority = 8;
/** Turns in which the start of a request has to be late. In one of them, a pause of the process may be the reason. */
const lateTurns = 2;

interface Waiting {
  /** By performance.now(). */
  readonly since: number;
  start(): boolean;
}

export class Starts {
  readonly #waiting: Readonly<Record<Priority, Waiting[]>> = { high: [], normal: [], low: [] };
  #started = 0;
  #isTurn = false;
  /** In how many turns up to now the first that waits has been late. */
  readonly #late: Record<Priority, number> = { high: 0, normal: 0, low: 0 };
  readonly #promptMs: number;

  /** @param promptMs milliseconds after which a start is late */
  constructor(promptMs: number) {
    this.#promptMs = promptMs;
  }

  /** Calls `start`, which returns whether there was anything to start, now or soon: by priority, then by `since`. */
  add(priority: Priority, since: number, start: () => boolean): void {
    if (!this.#isTurn) this.#beginTurn();
    const { high, normal, low } = this.#waiting;
    const isFirst = high.length === 0 && normal.length === 0 && low.length === 0;
    if (this.#started < perTurn && isFirst) this.#started += start() ? 1 : 0;
    else this.#waiting[priority].push({ since, start });
  }

  /** Whether requests of a priority wait too long, as the process is too busy to start them. */
  isLate(priority: Priority): boolean {
    return this.#late[priority] >= lateTurns;
  }

  #beginTurn(): void {
    this.#isTurn = true;
    setImmediate(() => this.#endTurn());
  }

  #endTurn(): void {
    this.#started = 0;
    for (const priority of priorities) this.#startWaiting(priority, perPriority);
    for (const priority of priorities) this.#startWaiting(priority, perTurn - this.#started);
    for (const priority of priorities)
      this.#late[priority] = this.#isFirstLate(priority) ? this.#late[priority] + 1 : 0;
    if (this.#started > 0) this.#beginTurn();
    else this.#isTurn = false;
  }

  #startWaiting(priority: Priority, most: number): void {
    const waiting = this.#waiting[priority];
    let [started, taken] = [0, 0];
    while (started < most && taken < waiting.length) {
      if (waiting[taken]?.start()) started += 1;
      taken += 1;
    }
    waiting.splice(0, taken);
    this.#started += started;
  }

  #isFirstLate(priority: Priority): boolean {
    const first = this.#waiting[priority][0];
    return first !== undefined && performance.now() - first.since > this.#promptMs;
  }
}
