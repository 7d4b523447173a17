/**
 * The flow of a chunk's messages: begins those that are due, as far as the budget of messages in flight has room, and
 * hands their outcomes to the tally and to the states of their services.
 */
import { currentSpan, inSpan, type Span } from "../../platform/base/tracing.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import type { Outcome, PushProvider, Send } from "../providers/provider.ts";
import { wholeProvider } from "../queue/provider-rows.ts";
import type { SendableChunk } from "../queue/take-chunks.ts";
import type { DeliveryMetrics } from "./delivery-report.ts";
import type { DeliveryRules } from "./delivery-rules.ts";
import type { InFlightBudget } from "./in-flight-budget.ts";
import type { Reservation } from "./rate-limiter.ts";
import type { StopReason } from "./sendability-check.ts";
import type { ServiceStates } from "./service-states.ts";
import type { DeliveryDevice } from "./tally.ts";
import { messageId, Tally } from "./tally.ts";

/**
 * What a chunk's next message waits for. In each state, messages in flight may wait for their outcomes.
 *
 * - "unreserved": for its time. All messages that were given one have begun, or have lost it.
 * - "early": that its time comes. A timer looks again.
 * - "unchecked": that a check finds the chunk sendable, as its time has come and the last check is `maxUncheckedMs` old.
 *   If it is late by more than `sliceMs` then, all messages that have a time lose it: they are unreserved.
 * - "due": for room in the budget, and for nothing else. It keeps its time, since room comes bit by bit.
 * - "stopped": for another take of the chunk. No message begins any more.
 */
type FlowState = "unreserved" | "early" | "unchecked" | "due" | "stopped";

export interface FlowDependencies {
  readonly provider: PushProvider;
  /** Shared by all chunks of the provider that this process sends. */
  readonly budget: InFlightBudget;
  readonly states: Pick<ServiceStates, "admits" | "report" | "selfTest" | "state">;
  readonly rules: DeliveryRules;
  readonly logger: Logger;
  readonly metrics: Pick<DeliveryMetrics, "senderExceptions">;
}

/** Messages of a chunk that have a span of their own. More would show the same, and a send to millions is one trace. */
const maxTraced = 32;

export class Flow {
  readonly #deps: FlowDependencies;
  readonly #chunk: SendableChunk;
  readonly #sendTo: (device: DeliveryDevice) => Send;
  readonly #next: () => void;
  /** The span in which the chunk is delivered, where that is traced. */
  readonly #span: Span | undefined = currentSpan();
  readonly tally: Tally;
  #state: FlowState = "unreserved";
  /** The newest moment as of which the chunk is known to be sendable, by `performance.now()`. */
  #confirmedAsOf: number;
  /** The messages that were given a time last, up to `end`. */
  #slice = { first: 0, end: 0, startsAt: 0, eachMs: 0 };
  #begun = 0;
  #inFlight = 0;
  #stopReason: StopReason | undefined;
  #restMs = 0;
  #timer: NodeJS.Timeout | undefined;
  #whenBegun: (() => void) | undefined;
  #whenResponded: (() => void) | undefined;

  /**
   * @param sendTo finds what sends the content that is a device's
   * @param next called, at least once, when the next chunk may be loaded: this one needs less than the budget now
   */
  constructor(
    dependencies: FlowDependencies,
    chunk: SendableChunk,
    sendTo: (device: DeliveryDevice) => Send,
    devices: readonly DeliveryDevice[],
    next: () => void,
  ) {
    this.#deps = dependencies;
    this.#chunk = chunk;
    this.#sendTo = sendTo;
    this.#next = next;
    this.#confirmedAsOf = chunk.asOf;
    this.tally = new Tally(devices, chunk.notification.keepsOutcomes);
  }

  /** Whether the messages were tried before. */
  get isRetry(): boolean {
    return this.#chunk.isRetry;
  }

  /** How many of the chunk's first messages were begun, those included that their service did not admit. */
  get begun(): number {
    return this.#begun;
  }

  /** Why no message begins any more; undefined: messages may begin. */
  get stopReason(): StopReason | undefined {
    return this.#stopReason;
  }

  /** Milliseconds for which the messages that have not begun are to wait. */
  get restMs(): number {
    return this.#restMs;
  }

  /** Gives the next messages their times. Resolves when all of them have begun or lost their time, or at a stop. */
  begin({ messages, startMs, endMs }: Reservation): Promise<void> {
    const first = this.#begun;
    const startsAt = performance.now() + startMs;
    this.#slice = { first, end: first + messages, startsAt, eachMs: (endMs - startMs) / messages };
    return new Promise((resolve) => {
      this.#whenBegun = resolve;
      this.onRoom();
    });
  }

  /** Resolves when every message that has begun has its outcome. */
  responded(): Promise<void> {
    return new Promise((resolve) => {
      this.#whenResponded = resolve;
      if (this.#inFlight === 0) resolve();
    });
  }

  /** Notes that the chunk is sendable. @param asOf when the check began that found so, by `performance.now()` */
  confirm(asOf: number): void {
    this.#confirmedAsOf = asOf;
    this.onRoom();
  }

  /**
   * Begins no further message; those in flight finish. The first reason counts.
   * @param restMs milliseconds for which the others are to wait
   */
  stop(reason: StopReason, restMs = 0): void {
    if (this.#stopReason === undefined) this.#restMs = restMs;
    this.#stopReason ??= reason;
    clearTimeout(this.#timer);
    this.onRoom();
    // A chunk that was taken too early, as the provider is paused, goes back.
    this.#next();
  }

  /** Looks again at what the next message waits for: begins those that are due, as far as the budget has room. */
  onRoom(): void {
    const { budget, rules } = this.#deps;
    while (this.#look() === "due" && budget.take(this)) {
      if (this.#isNearlyBegun()) this.#offerNext();
      void this.#sendOne(this.#begun++);
    }
    if (this.#state === "due") {
      // A chunk that waits for nothing keeps its turn: the time that it has reserved is time that no other chunk gets.
      if (this.isRetry) this.#offerNext();
      return;
    }
    budget.leave(this);
    if (this.#state === "unreserved" || this.#state === "stopped") this.#whenBegun?.();
    if (this.#state !== "early" || this.#timer) return;
    const waitMs = Math.max(this.#timeOf(this.#begun) - performance.now(), rules.tickMs);
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.onRoom();
    }, waitMs).unref();
  }

  #look(): FlowState {
    const { rules } = this.#deps;
    const now = performance.now();
    const lateMs = now - this.#timeOf(this.#begun);
    const isChecked = now - this.#confirmedAsOf < rules.maxUncheckedMs;
    // If each process made up for what it has missed, all of that would go out at once.
    if (this.#state === "unchecked" && isChecked && lateMs > rules.sliceMs) this.#slice.end = this.#begun;
    if (this.#stopReason) this.#state = "stopped";
    else if (this.#begun === this.#slice.end) this.#state = "unreserved";
    else if (lateMs < 0) this.#state = "early";
    else this.#state = isChecked ? "due" : "unchecked";
    return this.#state;
  }

  /** When the message of this index may begin, by `performance.now()`. */
  #timeOf(index: number): number {
    const { first, startsAt, eachMs } = this.#slice;
    return startsAt + (index - first) * eachMs;
  }

  /** Whether the next chunk, which takes a moment to load, is needed soon after the message that begins now. */
  #isNearlyBegun(): boolean {
    const { provider, rules } = this.#deps;
    const { size } = this.tally;
    return (
      this.#slice.end === size &&
      size - this.#begun - 1 <= provider.maxInFlight / 2 &&
      performance.now() >= this.#timeOf(size - 1) - rules.loadAheadMs
    );
  }

  /** Lets the next chunk begin. While the provider is paused or probed, chunks begin one after the other. */
  #offerNext(): void {
    if (this.#deps.states.state(wholeProvider) === "working") this.#next();
  }

  async #sendOne(index: number): Promise<void> {
    const { budget, states } = this.#deps;
    const { service = wholeProvider, userId = "" } = this.tally.device(index) ?? {};
    const sent = { at: performance.now(), hasFailedBefore: this.#chunk.retries > 0 };
    this.#inFlight += 1;
    let outcome: Outcome | undefined;
    try {
      outcome = await this.#outcome(index);
      // A refusal that a self-test can check is checked.
      if (outcome?.kind === "refused") outcome = await states.selfTest.confirm(outcome);
    } catch (err) {
      outcome = this.#defect(err);
    }
    this.#inFlight -= 1;
    if (outcome) {
      this.tally.add(index, outcome);
      states.report(service, userId, outcome, sent);
      this.#stopIfPaused();
    }
    budget.giveBack(this);
    if (this.#inFlight === 0) this.#whenResponded?.();
  }

  /** Sends a message. @returns undefined if its service does not admit it */
  #outcome(index: number): Promise<Outcome> | undefined {
    const device = this.tally.device(index);
    if (device === undefined || !this.#deps.states.admits(device.service)) {
      this.#stopIfPaused();
      return undefined;
    }
    const { id, token, reader } = device;
    const platform = reader?.platform ?? null;
    const recipient = { token, messageId: messageId(this.#chunk.notificationId, id), platform };
    const send = this.#sendTo(device);
    return this.#span && index < maxTraced ? this.#traced(() => send(recipient)) : send(recipient);
  }

  /**
   * Sends within a span. Its parent is named, as the response to another chunk's message may be what begins this one.
   */
  #traced(send: () => Promise<Outcome>): Promise<Outcome> {
    const { name } = this.#deps.provider;
    const attributes = { "messaging.system": name, "messaging.operation.type": "send" };
    const start = { name: `send ${name}`, kind: "client", attributes, parent: this.#span?.context } as const;
    return inSpan(start, async (span) => {
      const outcome = await send();
      if (outcome.kind !== "sent") span?.fail(outcome.kind);
      return outcome;
    });
  }

  /** The outcome of a message whose sender threw. The message of its error may quote the token, so its class is logged. */
  #defect(err: unknown): Outcome {
    const { provider, logger, metrics } = this.#deps;
    metrics.senderExceptions.inc({ provider: provider.name });
    const type = err instanceof Error ? err.name : "unknown";
    logger.error({ provider: provider.name, err: { type } }, "A sender has a defect: it threw an exception");
    return { kind: "retry", isOwn: true, reason: `the sender failed: ${type}` };
  }

  #stopIfPaused(): void {
    const { provider, states } = this.#deps;
    if (provider.serviceOf === undefined && states.state(wholeProvider) === "paused") this.stop("provider");
  }
}
