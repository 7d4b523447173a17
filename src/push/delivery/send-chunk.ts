/**
 * The sending of one chunk: at the fleet's pace, after a probe where the provider has failed, until all is sent or
 * something stops it. Writes nothing down but the provider's pauses.
 */
import { pause } from "../../platform/base/loop.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import type { NotificationContent, PushProvider } from "../providers/provider.ts";
import type { DeliveryDevice, TakenChunk } from "./chunk-repository.ts";
import type { DeliveryMetrics } from "./delivery-metrics.ts";
import type { DeliveryRules } from "./delivery-rules.ts";
import { Flow } from "./flow.ts";
import { messageId } from "./message-id.ts";
import type { ProviderRateLimiter, Reservation } from "./rate-limiter.ts";
import { type ProviderFailure, Tally } from "./tally.ts";
import type { Halt, Watch } from "./watch.ts";

/**
 * Why a chunk was not sent to its end. `long`: it takes its time, and is written down in between. `ending`: the process
 * is. `database`: its pace could not be asked for. `unavailable`, `refused`: the provider's word.
 */
type Stop = Halt | ProviderFailure["kind"] | "long" | "ending" | "database";

export interface Sending {
  readonly tally: Tally;
  /** Undefined: all messages were sent, and whoever is left was left by errors. */
  readonly stop: Stop | undefined;
  /** Milliseconds that the provider is paused for, as far as it is known. */
  readonly pausedMs: number;
}

export interface SendDependencies {
  readonly provider: PushProvider;
  readonly pace: ProviderRateLimiter;
  readonly watch: Watch;
  readonly rules: DeliveryRules;
  readonly logger: Logger;
  readonly metrics: DeliveryMetrics;
}

export async function sendChunk(
  dependencies: SendDependencies,
  chunk: TakenChunk,
  content: NotificationContent,
  devices: readonly DeliveryDevice[],
  stopping: AbortSignal,
): Promise<Sending> {
  const sending = new ChunkSending(dependencies, chunk, content, devices);
  const end = () => sending.halt("ending");
  stopping.addEventListener("abort", end);
  const unwatch = dependencies.watch.add({
    id: chunk.id,
    attempt: chunk.attempt,
    halt: (why) => sending.halt(why),
  });
  try {
    if (stopping.aborted) end();
    return await sending.run();
  } finally {
    unwatch();
    stopping.removeEventListener("abort", end);
  }
}

class ChunkSending {
  readonly #deps: SendDependencies;
  readonly #chunk: TakenChunk;
  readonly #count: number;
  readonly #tally: Tally;
  readonly #flow: Flow;
  readonly #halted = new AbortController();
  readonly #endBy: number;
  #released = 0;
  #stop: Stop | undefined;
  #pausedMs = 0;
  #failure: ProviderFailure | undefined;
  #pausing: Promise<void> | undefined;

  constructor(
    deps: SendDependencies,
    chunk: TakenChunk,
    content: NotificationContent,
    devices: readonly DeliveryDevice[],
  ) {
    this.#deps = deps;
    this.#chunk = chunk;
    this.#count = devices.length;
    this.#endBy = performance.now() + deps.rules.longestMs;
    const tally = new Tally(devices, deps.provider.isOneService ? deps.rules.retriesInARow : Infinity);
    this.#tally = tally;
    this.#flow = new Flow({
      send: deps.provider.prepare(content),
      maxInFlight: deps.provider.maxInFlight,
      recipient(index) {
        const { id = 0, token = "" } = devices[index] ?? {};
        return { token, messageId: messageId(content.notificationId, id) };
      },
      onOutcome: (index, outcome) => {
        const failure = tally.add(index, outcome);
        if (failure) this.#failed(failure);
      },
    });
  }

  /** No further message is sent; the first reason counts. */
  halt(why: Stop): void {
    this.#stop ??= why;
    this.#flow.stop();
    this.#halted.abort();
  }

  async run(): Promise<Sending> {
    try {
      const isToBeProbed = this.#chunk.failures > 0;
      if (!isToBeProbed || (await this.#probe())) await this.#letGo(this.#count);
    } catch (err) {
      // Only its pace is asked of the database here. What was sent is written down as soon as it is back.
      this.#deps.logger.warn({ err, chunk: this.#chunk.id }, "a chunk of messages is put back for now");
      this.halt("database");
    }
    await this.#flow.idle();
    await this.#pausing;
    await this.#prolongPause();
    return { tally: this.#tally, stop: this.#stop, pausedMs: this.#pausedMs };
  }

  /** Sends a few messages and waits for their answers. @returns whether to go on */
  async #probe(): Promise<boolean> {
    const { pace, provider, rules, logger } = this.#deps;
    await this.#letGo(Math.min(rules.probeMessages, this.#count));
    await this.#flow.idle();
    if (this.#stop !== undefined || this.#count === 0) return false;
    if (this.#tally.answered === 0) {
      if (!provider.isOneService) return true;
      const reason = this.#tally.reason ?? "no answer";
      this.#failed({ kind: "unavailable", afterMs: this.#tally.afterMs, reason });
      return false;
    }
    if (await pace.recordSuccess()) logger.info({ provider: provider.name }, "the push provider works again");
    return true;
  }

  /** Sends the first `count` messages in all, at the fleet's pace. */
  async #letGo(count: number): Promise<void> {
    const { pace } = this.#deps;
    if (!pace.isLimited) {
      this.#flow.release(count);
      return;
    }
    while (this.#released < count && this.#stop === undefined) {
      if (performance.now() > this.#endBy) return this.halt("long");
      const grant = await pace.reserve(count - this.#released, this.#chunk.notification.acceptedAt);
      if ("pausedMs" in grant) {
        this.#pausedMs = grant.pausedMs;
        return this.halt("provider");
      }
      await this.#spread(grant);
      // A provider that is slower than the pace must not get it all at once later.
      await this.#flow.started();
    }
  }

  /** Lets messages go evenly over the time that was reserved for them. */
  async #spread({ messages, startMs, endMs }: Extract<Reservation, { messages: number }>): Promise<void> {
    const first = this.#released;
    const start = performance.now() + startMs;
    const eachMs = (endMs - startMs) / messages;
    for (let gone = 0; gone < messages && this.#stop === undefined; ) {
      const dueInMs = start + gone * eachMs - performance.now();
      if (dueInMs > 0) await pause(Math.max(dueInMs, this.#deps.rules.tickMs), this.#halted.signal);
      const due = Math.floor((performance.now() - start) / eachMs) + 1;
      gone = Math.max(gone, Math.min(messages, due));
      this.#released = first + gone;
      this.#flow.release(this.#released);
    }
  }

  /** The fleet is told at once, while this chunk's last messages are still in flight. */
  #failed(failure: ProviderFailure): void {
    this.halt(failure.kind);
    this.#pausing ??= this.#pause(failure);
    const asked = this.#failure?.afterMs ?? 0;
    if (!this.#failure || failure.afterMs > asked) this.#failure = failure;
  }

  async #pause({ kind, afterMs, reason }: ProviderFailure): Promise<void> {
    const { pace, provider, logger, metrics, rules } = this.#deps;
    try {
      const { pausedMs, isNew, failures } =
        kind === "refused" ? await pace.recordRefusal(reason) : await pace.recordFailure(afterMs, reason);
      this.#pausedMs = pausedMs;
      metrics.paused(provider.name, true);
      if (!isNew) return;
      const about = { provider: provider.name, reason, failures, pausedSeconds: Math.ceil(pausedMs / 1000) };
      if (kind === "refused") {
        logger.error(
          about,
          "the push provider refuses us; check its credentials, project and topic in the settings",
        );
      } else {
        logger.warn(about, "the push provider fails; nothing is sent to it for a while");
      }
    } catch (err) {
      this.#pausedMs = rules.firstPauseMs;
      logger.warn({ err, provider: provider.name }, "the pause of a push provider could not be written down");
    }
  }

  /** Answers that came after the first failure may ask for more. */
  async #prolongPause(): Promise<void> {
    if (this.#failure?.kind === "unavailable" && this.#failure.afterMs > this.#pausedMs) {
      await this.#pause(this.#failure);
    }
  }
}
