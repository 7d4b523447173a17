/**
 * The sending of one chunk within the rate limit, until all messages are sent or something stops it. If the provider
 * has failed before, a probe comes first. Stores nothing but the provider's pauses.
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
 * Why a chunk was not sent to its end. `long`: it takes longer than `maxSendingMs`, so its results are stored in
 * between. `ending`: the process stops. `database`: the rate limiter could not reach the database. `unavailable`,
 * `refused`: outcomes that the provider gave.
 */
type Stop = Halt | ProviderFailure["kind"] | "long" | "ending" | "database";

export interface Sending {
  readonly tally: Tally;
  /** Undefined: all messages were sent, and errors are why devices are left. */
  readonly stop: Stop | undefined;
  /** Milliseconds that are left of the provider's pause; 0: this process has seen none. */
  readonly pausedMs: number;
}

export interface SendDependencies {
  readonly provider: PushProvider;
  readonly rateLimiter: ProviderRateLimiter;
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
  readonly #deadline: number;
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
    this.#deadline = performance.now() + deps.rules.maxSendingMs;
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
        if (failure) this.#onProviderFailure(failure);
      },
    });
  }

  /** Stops sending; messages in flight finish. The first reason counts. */
  halt(why: Stop): void {
    this.#stop ??= why;
    this.#flow.stop();
    this.#halted.abort();
  }

  async run(): Promise<Sending> {
    try {
      const needsProbe = this.#chunk.failures > 0;
      if (!needsProbe || (await this.#probe())) await this.#release(this.#count);
    } catch (err) {
      // Only the rate limiter uses the database here. The results are stored as soon as the database is back.
      this.#deps.logger.warn(
        { err, chunkId: this.#chunk.id },
        "The rate limiter failed, so a chunk is queued again",
      );
      this.halt("database");
    }
    await this.#flow.idle();
    await this.#pausing;
    await this.#prolongPause();
    return { tally: this.#tally, stop: this.#stop, pausedMs: this.#pausedMs };
  }

  /** Sends a few messages and waits for their outcomes. @returns whether to send the rest */
  async #probe(): Promise<boolean> {
    const { rateLimiter, provider, rules, logger } = this.#deps;
    await this.#release(Math.min(rules.probeMessages, this.#count));
    await this.#flow.idle();
    if (this.#stop !== undefined || this.#count === 0) return false;
    if (this.#tally.finalOutcomes === 0) {
      if (!provider.isOneService) return true;
      const reason = this.#tally.reason ?? "no response";
      this.#onProviderFailure({ kind: "unavailable", afterMs: this.#tally.afterMs, reason });
      return false;
    }
    if (await rateLimiter.recordSuccess())
      logger.info({ provider: provider.name }, "The push provider works again");
    return true;
  }

  /** Releases the chunk's first `count` messages, within the rate limit. */
  async #release(count: number): Promise<void> {
    const { rateLimiter } = this.#deps;
    if (!rateLimiter.isLimited) {
      this.#flow.release(count);
      return;
    }
    while (this.#released < count && this.#stop === undefined) {
      if (performance.now() > this.#deadline) return this.halt("long");
      const reservation = await rateLimiter.reserve(
        count - this.#released,
        this.#chunk.notification.acceptedAt,
      );
      if ("pausedMs" in reservation) {
        this.#pausedMs = reservation.pausedMs;
        return this.halt("provider");
      }
      await this.#spread(reservation);
      // If the provider is slower than the rate limit, released messages must not pile up and go out as a burst.
      await this.#flow.started();
    }
  }

  /** Releases the messages of a reservation evenly over its time. */
  async #spread({ messages, startMs, endMs }: Extract<Reservation, { messages: number }>): Promise<void> {
    const first = this.#released;
    const start = performance.now() + startMs;
    const eachMs = (endMs - startMs) / messages;
    for (let released = 0; released < messages && this.#stop === undefined; ) {
      const dueInMs = start + released * eachMs - performance.now();
      if (dueInMs > 0) await pause(Math.max(dueInMs, this.#deps.rules.tickMs), this.#halted.signal);
      const due = Math.floor((performance.now() - start) / eachMs) + 1;
      released = Math.max(released, Math.min(messages, due));
      this.#released = first + released;
      this.#flow.release(this.#released);
    }
  }

  /** Pauses the provider for all processes at once, while this chunk's last messages are still in flight. */
  #onProviderFailure(failure: ProviderFailure): void {
    this.halt(failure.kind);
    this.#pausing ??= this.#pause(failure);
    const currentMs = this.#failure?.afterMs ?? 0;
    if (!this.#failure || failure.afterMs > currentMs) this.#failure = failure;
  }

  async #pause({ kind, afterMs, reason }: ProviderFailure): Promise<void> {
    const { rateLimiter, provider, logger, metrics, rules } = this.#deps;
    try {
      const { pausedMs, isNew, failures } =
        kind === "refused"
          ? await rateLimiter.recordRefusal(reason)
          : await rateLimiter.recordFailure(afterMs, reason);
      this.#pausedMs = pausedMs;
      metrics.paused(provider.name, true);
      if (!isNew) return;
      const fields = { provider: provider.name, reason, failures, pausedSeconds: Math.ceil(pausedMs / 1000) };
      if (kind === "refused") {
        logger.error(
          fields,
          "The push provider refuses us: check its credentials, project and topic in the settings",
        );
      } else {
        logger.warn(fields, "The push provider fails, so sending to it is paused");
      }
    } catch (err) {
      this.#pausedMs = rules.firstPauseMs;
      logger.warn({ err, provider: provider.name }, "The pause of a push provider could not be stored");
    }
  }

  /** Responses that came after the first failure may want a longer pause. */
  async #prolongPause(): Promise<void> {
    if (this.#failure?.kind === "unavailable" && this.#failure.afterMs > this.#pausedMs) {
      await this.#pause(this.#failure);
    }
  }
}
