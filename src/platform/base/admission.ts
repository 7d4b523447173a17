/**
 * Sheds load: while more requests arrive than can be answered in time, some are refused at once, so that the others are
 * still answered (Controlled Delay, RFC 8289, with the requests of a process in the place of the packets of a queue).
 *
 * A request is refused if two things hold. Too many others of its priority or a higher one are in flight; a closed loop
 * of fewer callers is never refused. And there is a queue: of those that were admitted lately, fewer than half were
 * answered promptly, or this one itself has waited for too long, as the process is busy with what came before it.
 * Without one there may be any number in flight, as behind a database that is far away. While requests of a priority
 * are refused, those of lower ones are, too.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import type { Logger } from "pino";
import { ErrorKinds, ServiceError } from "./errors.ts";
import type { AdmissionObserver } from "./observers.ts";

/** What is answered first while not all can be, in this order. */
export const priorities = ["high", "normal", "low"] as const;
export type Priority = (typeof priorities)[number];

/** What a request asks for, as far as it matters for whether it is admitted. */
export interface Prioritized {
  /** For the metrics. */
  readonly service: string;
  readonly priority: Priority;
}

/** What a request over HTTP asks for, with the response that refuses it. */
export interface Guarded extends Prioritized {
  /** Writes the response. Nothing has been read of the body. */
  refuse(request: IncomingMessage | Http2ServerRequest, response: ServerResponse | Http2ServerResponse): void;
}

/** How far a request has been received. What a client has not sent yet waits for nobody but the client. */
interface Arrival {
  isComplete(): boolean;
  /** Calls back once, when all of the request has been received; never for one that is given up. */
  onComplete(received: () => void): void;
}

/** A request that was admitted. */
export interface Admitted {
  readonly priority: Priority;
  readonly arrival: Arrival;
  /** When it was admitted or, if that was later, received as a whole; by performance.now(). */
  entered: number;
  /** Whether it is among those in flight. */
  isCounted: boolean;
  /** Whether it was answered or given up. */
  hasLeft: boolean;
}

/** An operation of an HTTP API that may be refused, and where it is served. */
export interface GuardedOperation extends Guarded {
  /** In upper case. */
  readonly method: string;
  /** As Hono routes them: `/items/:id`. */
  readonly paths: readonly string[];
}

/** Requests of a priority and the higher ones that may be in flight while there is a standing queue. */
const maxBacklog = 384;
/** A request that takes longer, in milliseconds, has not been answered promptly. */
const promptMs = 100;
/** A queue is judged by the requests of a window: so many milliseconds and so many requests, at least. */
const windowMs = 100;
const windowRequests = 50;
/** Milliseconds after which a window is begun anew, however few its requests: it says nothing of the present. */
const staleMs = 5_000;
/** Milliseconds after a refusal in which lower priorities are refused, too. */
const holdMs = 1_000;
/** Milliseconds without a refusal after which shedding is over. */
const quietMs = 2_000;
/** Seconds that a caller who was refused is asked to wait. */
const retryAfterSeconds = 1;

/** The error of a request that is not admitted. */
export const overloaded = new ServiceError(
  ErrorKinds.unavailable,
  "More requests arrive than can be answered. Try again in a moment.",
  { retryAfterSeconds },
);

/** The requests that were admitted in a time, and how many of them have been answered promptly. */
interface Window {
  readonly began: number;
  admitted: number;
  prompt: number;
}

const windowFrom = (began: number): Window => ({ began, admitted: 0, prompt: 0 });

/** The requests of one priority. */
class Load {
  inFlight = 0;
  /** Of those in flight: finished in this turn of the event loop. */
  finished = 0;
  /** Whether there is a standing queue. */
  isLate = false;
  refusedAt = Number.NEGATIVE_INFINITY;
  #current = windowFrom(0);
  /** Those of its requests that are not answered are late by the end of the current window. */
  #previous = windowFrom(0);

  get unanswered(): number {
    return this.inFlight - this.finished;
  }

  admit(): void {
    this.inFlight += 1;
    this.#current.admitted += 1;
  }

  /** Takes out what was admitted in this turn. */
  suspend(entered: number): void {
    this.inFlight -= 1;
    if (entered >= this.#current.began) this.#current.admitted -= 1;
    else this.#previous.admitted -= 1;
  }

  /** @param entered when the request was admitted */
  finish(entered: number, now: number): void {
    // It counts until the turn ends. Otherwise requests that are answered at once would never be in flight, however
    // many of them wait in the connections.
    this.finished += 1;
    if (now - entered > promptMs) return;
    if (entered >= this.#current.began) this.#current.prompt += 1;
    else this.#previous.prompt += 1;
  }

  endTurn(began: number, now: number): void {
    this.inFlight -= this.finished;
    this.finished = 0;
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

/** What has been refused since shedding began. */
interface Shedding {
  readonly began: number;
  lastAt: number;
  count: number;
}

/** Admits the requests of a process, over any protocol, or refuses them. */
export class Admission {
  readonly #logger: Logger;
  readonly #observer: AdmissionObserver;
  readonly #loads: Readonly<Record<Priority, Load>> = {
    high: new Load(),
    normal: new Load(),
    low: new Load(),
  };
  /** Admitted in this turn. */
  #arriving: Admitted[] = [];
  /** Whose responses have begun to be sent in this turn. */
  #responding: Admitted[] = [];
  /** Not yet reported to the observer. */
  readonly #refused = new Map<Prioritized, number>();
  /** By performance.now(); undefined between two turns of the event loop that have requests. */
  #turnBegan: number | undefined;
  #shedding: Shedding | undefined;

  constructor({ logger, observer }: Dependencies) {
    this.#logger = logger;
    this.#observer = observer;
    const { high, normal, low } = this.#loads;
    observer.inFlight(() => ({ high: high.unanswered, normal: normal.unanswered, low: low.unanswered }));
  }

  /**
   * Admits a request, or refuses it.
   * @returns for `leave`, when the request has been answered or given up; undefined if it is refused
   */
  enter(request: Prioritized, arrival: Arrival): Admitted | undefined {
    // What arrived while the process was busy has waited since this turn of the event loop began.
    const now = this.#turnBegan ?? this.#beginTurn();
    let backlog = 0;
    for (const priority of priorities) {
      const load = this.#loads[priority];
      backlog += load.inFlight;
      if (priority === request.priority) {
        if (backlog >= maxBacklog && (load.isLate || performance.now() - now > promptMs))
          return this.#refuse(request, load, backlog, now);
        load.admit();
        break;
      }
      if (now - load.refusedAt < holdMs)
        return this.#refuse(request, this.#loads[request.priority], backlog, now);
    }
    const admitted = { priority: request.priority, arrival, entered: now, isCounted: true, hasLeft: false };
    this.#arriving.push(admitted);
    return admitted;
  }

  /**
   * The response to a request that was admitted begins to be sent. Most are sent at once; one that is not waits for
   * nobody but its client, and is in flight no more after the next turn of the event loop.
   */
  respond(admitted: Admitted): void {
    if (this.#responding.push(admitted) > 1) return;
    setImmediate(() => {
      const responded = this.#responding;
      this.#responding = [];
      setImmediate(() => {
        for (const one of responded) this.leave(one);
      });
    });
  }

  /** Called for each request that was admitted. Only the first call counts. */
  leave(admitted: Admitted): void {
    admitted.hasLeft = true;
    if (!admitted.isCounted) return;
    admitted.isCounted = false;
    if (this.#turnBegan === undefined) this.#beginTurn();
    this.#loads[admitted.priority].finish(admitted.entered, performance.now());
  }

  /** A request of which a part is missing is not in flight until that comes: anybody can send none of it. */
  #suspendIncomplete(): void {
    const arriving = this.#arriving;
    this.#arriving = [];
    for (const admitted of arriving) {
      if (!admitted.isCounted || admitted.arrival.isComplete()) continue;
      const load = this.#loads[admitted.priority];
      load.suspend(admitted.entered);
      admitted.isCounted = false;
      admitted.arrival.onComplete(() => {
        if (admitted.hasLeft) return;
        admitted.entered = this.#turnBegan ?? this.#beginTurn();
        admitted.isCounted = true;
        load.admit();
      });
    }
  }

  /** Makes the metrics of these show before anything has been refused. */
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
