/**
 * Sheds load, so that the requests that are let in get a prompt response (Controlled Delay, RFC 8289, with the requests
 * of a process in the place of a queue's packets). A request is refused if all of these hold, or if one of a higher
 * priority was refused within the last second:
 *
 * 1. At least 384 requests of its priority or a higher one are in flight.
 * 2. At least as many of its own priority are in flight as got a response in 200 ms, at the best rate of the last ten
 * seconds.
 * 3. There is a queue: fewer than half of those of its priority that were admitted lately got a response within 100 ms;
 * or the first that is not started has waited longer than that, in two turns of the event loop.
 *
 * Fewer than 384 callers who each wait for their response are never refused, nor are those that only wait for a distant
 * database.
 */
import type { Logger } from "pino";
import type { AdmissionObserver } from "../base/observers.ts";
import { type Prioritized, type Priority, priorities } from "../base/priority.ts";
import { Starts } from "./starts.ts";

/** How far a request has been received. A request that is not complete waits only for its client. */
interface Arrival {
  isComplete(): boolean;
  /** Calls back once, when all of the request has been received; never if the request is given up. */
  onComplete(received: () => void): void;
}

/** How many requests were admitted in a window, and how many of them got a prompt response. */
interface Window {
  readonly began: number;
  admitted: number;
  prompt: number;
}

export interface Admitted {
  readonly priority: Priority;
  readonly arrival: Arrival;
  /** When the request was admitted, or received as a whole if that was after its start; by performance.now(). */
  entered: number;
  window: Window;
  isCounted: boolean;
  isResponded: boolean;
  hasLeft: boolean;
}

/** Requests of a priority and the higher ones that may be in flight while there is a queue, at any speed. */
const minBacklog = 384;
/** Milliseconds within which a response is prompt. */
const promptMs = 100;
/** Milliseconds for whose requests there is room while there is a queue: more than {@link promptMs}. */
const roomMs = 200;
/** Milliseconds in which responses are counted for a rate. In shorter times there may be twice as many by chance. */
const rateMs = 500;
/** A window, by which a queue is judged, lasts at least so long and has at least so many requests. */
const windowMs = 100;
const windowRequests = 50;
/** Milliseconds after which a window is begun anew, however few its requests are: it is too old by then. */
const staleMs = 5_000;
/** Milliseconds after a refusal for which lower priorities are refused, too. */
const holdMs = 1_000;
/** Milliseconds without a refusal after which shedding is over. */
const quietMs = 2_000;
const windowFrom = (began: number): Window => ({ began, admitted: 0, prompt: 0 });

/** The highest rate of responses, per millisecond, within the last ten seconds. */
class BestRate {
  /** The highest rate of these five seconds, and of the five before. */
  #current = 0;
  #before = 0;
  #since = 0;
  #count = 0;
  #countedSince = 0;

  count(): void {
    this.#count += 1;
  }

  endTurn(now: number): void {
    const age = now - this.#countedSince;
    if (age < rateMs) return;
    this.#advance(now);
    this.#current = Math.max(this.#current, this.#count / age);
    this.#count = 0;
    this.#countedSince = now;
  }

  at(now: number): number {
    this.#advance(now);
    return Math.max(this.#before, this.#current);
  }

  #advance(now: number): void {
    const age = now - this.#since;
    if (age <= staleMs) return;
    this.#before = age <= 2 * staleMs ? this.#current : 0;
    this.#current = 0;
    this.#since = now;
  }
}

class Load {
  inFlight = 0;
  /** How many of those in flight have finished in this turn of the event loop. */
  finished = 0;
  /** Whether there is a queue: in the previous window, fewer than half of the responses were prompt. */
  isLate = false;
  refusedAt = Number.NEGATIVE_INFINITY;
  readonly #rate = new BestRate();
  #current = windowFrom(0);
  /** The window before. It is judged at the end of the current one: what has no response by then is late. */
  #previous = windowFrom(0);

  get inProgress(): number {
    return this.inFlight - this.finished;
  }

  /** For how many requests there is room while there is a queue. */
  room(now: number): number {
    return this.#rate.at(now) * roomMs;
  }

  admit(): Window {
    this.inFlight += 1;
    this.#current.admitted += 1;
    return this.#current;
  }

  suspend({ window }: Admitted): void {
    this.inFlight -= 1;
    window.admitted -= 1;
  }

  finish({ entered, isResponded, window }: Admitted, now: number): void {
    // It counts until the turn ends. Otherwise requests with an immediate response would never be in flight, however
    // many of them wait in the connections.
    this.finished += 1;
    if (isResponded) this.#rate.count();
    if (now - entered <= promptMs) window.prompt += 1;
  }

  endTurn(began: number, now: number): void {
    this.inFlight -= this.finished;
    this.finished = 0;
    this.#rate.endTurn(now);
    const age = now - this.#current.began;
    const isIdle = this.inFlight === 0 && now - began < promptMs;
    if (isIdle || age > staleMs) {
      this.isLate = false;
      this.#previous = windowFrom(now);
      this.#current = windowFrom(now);
    } else if (age >= windowMs && this.#current.admitted >= windowRequests) {
      this.isLate = this.#previous.prompt * 2 < this.#previous.admitted;
      this.#previous = this.#current;
      this.#current = windowFrom(now);
    }
  }
}

interface Dependencies {
  readonly logger: Logger;
  readonly observer: AdmissionObserver;
}

interface Shedding {
  readonly began: number;
  lastAt: number;
  count: number;
}

/** Admits or refuses the requests of a process, over any protocol. */
export class Admission {
  readonly #logger: Logger;
  readonly #observer: AdmissionObserver;
  readonly #loads: Readonly<Record<Priority, Load>> = {
    high: new Load(),
    normal: new Load(),
    low: new Load(),
  };
  readonly #starts = new Starts(promptMs);
  #starting: Admitted[] = [];
  #responding: (() => void)[] = [];
  readonly #refused = new Map<Prioritized, number>();
  /** When this turn of the event loop began, by performance.now(); undefined if no request has come in it. */
  #turnBegan: number | undefined;
  #shedding: Shedding | undefined;

  constructor({ logger, observer }: Dependencies) {
    this.#logger = logger;
    this.#observer = observer;
    const { high, normal, low } = this.#loads;
    observer.inFlight(() => ({ high: high.inProgress, normal: normal.inProgress, low: low.inProgress }));
  }

  /** Admits a request, for a call of `start` and one of `leave`; or refuses it: then the result is undefined. */
  enter(request: Prioritized, arrival: Arrival): Admitted | undefined {
    // What arrived while the process was busy has waited since this turn of the event loop began.
    const now = this.#turnBegan ?? this.#beginTurn();
    let backlog = 0;
    for (const priority of priorities) {
      const load = this.#loads[priority];
      backlog += load.inFlight;
      if (priority === request.priority) {
        const isFull = backlog >= minBacklog && load.inFlight >= load.room(now);
        if (isFull && (load.isLate || this.#starts.isLate(priority)))
          return this.#refuse(request, load, backlog, now);
        const window = load.admit();
        const entered = now;
        return { priority, arrival, entered, window, isCounted: true, isResponded: false, hasLeft: false };
      }
      if (now - load.refusedAt < holdMs)
        return this.#refuse(request, this.#loads[request.priority], backlog, now);
    }
    return undefined;
  }

  /** Calls `begin` in this turn of the event loop or a later one; never if the request has left by then. */
  start(admitted: Admitted, begin: () => void): void {
    this.#starts.add(admitted.priority, admitted.entered, () => {
      if (admitted.hasLeft) return false;
      if (this.#turnBegan === undefined) this.#beginTurn();
      this.#starting.push(admitted);
      this.#observer.waited(admitted.priority, (performance.now() - admitted.entered) / 1000);
      begin();
      return true;
    });
  }

  /** Records that the response begins to be sent. After the next turn `leave` is called, as the request is over. */
  respond(admitted: Admitted, leave = () => this.leave(admitted)): void {
    admitted.isResponded = true;
    if (this.#responding.push(leave) > 1) return;
    setImmediate(() => {
      const responded = this.#responding;
      this.#responding = [];
      setImmediate(() => {
        for (const leaveNow of responded) leaveNow();
      });
    });
  }

  /** Records that an admitted request has got its response or was given up. Only the first call counts. */
  leave(admitted: Admitted): void {
    admitted.hasLeft = true;
    if (!admitted.isCounted) return;
    admitted.isCounted = false;
    if (this.#turnBegan === undefined) this.#beginTurn();
    this.#loads[admitted.priority].finish(admitted, performance.now());
  }

  /** Takes incomplete requests out of those in flight until they are complete, or anybody could fill the count. */
  #suspendIncomplete(): void {
    const starting = this.#starting;
    this.#starting = [];
    for (const admitted of starting) {
      if (!admitted.isCounted || admitted.arrival.isComplete()) continue;
      const load = this.#loads[admitted.priority];
      load.suspend(admitted);
      admitted.isCounted = false;
      admitted.arrival.onComplete(() => {
        if (admitted.hasLeft) return;
        admitted.entered = this.#turnBegan ?? this.#beginTurn();
        admitted.isCounted = true;
        admitted.window = load.admit();
      });
    }
  }

  /** Makes the metrics of these operations show before anything has been refused. */
  register(requests: readonly Prioritized[]): void {
    for (const { service, priority } of requests) this.#observer.shed(service, priority, 0);
  }

  #beginTurn(): number {
    this.#turnBegan = performance.now();
    setImmediate(() => this.#endTurn());
    return this.#turnBegan;
  }

  #endTurn(): void {
    const now = performance.now();
    const began = this.#turnBegan ?? now;
    this.#turnBegan = undefined;
    this.#suspendIncomplete();
    for (const priority of priorities) this.#loads[priority].endTurn(began, now);
    if (this.#refused.size === 0) return;
    for (const [{ service, priority }, count] of this.#refused) this.#observer.shed(service, priority, count);
    this.#refused.clear();
  }

  #refuse(request: Prioritized, load: Load, inFlight: number, now: number): undefined {
    load.refusedAt = now;
    this.#refused.set(request, (this.#refused.get(request) ?? 0) + 1);
    if (!this.#shedding) {
      const { service, priority } = request;
      this.#logger.warn(
        { service, priority, inFlight },
        "Requests are refused, because more arrive than can be answered in time",
      );
      this.#shedding = { began: now, lastAt: now, count: 0 };
      this.#awaitQuiet(this.#shedding);
    }
    this.#shedding.lastAt = now;
    this.#shedding.count += 1;
  }

  #awaitQuiet(shedding: Shedding): void {
    const check = () => {
      if (performance.now() - shedding.lastAt < quietMs) return this.#awaitQuiet(shedding);
      this.#shedding = undefined;
      const durationMs = Math.round(shedding.lastAt - shedding.began);
      this.#logger.warn({ refused: shedding.count, durationMs }, "Requests are no longer refused");
    };
    setTimeout(check, quietMs).unref();
  }
}
