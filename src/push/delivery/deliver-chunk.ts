/**
 * The chunks of one provider in this process: takes those that it has room for, and has them sent. The next ones are
 * taken when the messages of these are in flight.
 */
import { pause } from "../../platform/base/loop.ts";
import { inQueueSpan } from "../../platform/messaging/event-spans.ts";
import { setAside } from "../notifications/follow-chunks.ts";
import { giveBack } from "../queue/give-back.ts";
import { wholeProvider } from "../queue/provider-rows.ts";
import { ChunkLostError } from "../queue/store-results.ts";
import { type ChunkTaker, isSendable, mostChunks, type TakenChunk } from "../queue/take-chunks.ts";
import { type AttemptDependencies, ChunkAttempt } from "./chunk-attempt.ts";
import type { DeliveryRules } from "./delivery-rules.ts";
import { prepareContent } from "./prepare-content.ts";
import { type SendDependencies, startSending } from "./send-chunk.ts";
import type { Tally } from "./tally.ts";

interface Dependencies extends Omit<AttemptDependencies, "provider">, SendDependencies {
  readonly taker: ChunkTaker;
  readonly maxPerSecond: number;
  readonly imageBaseUrl: string | undefined;
}

/** Milliseconds between tries to give a chunk back. */
const giveBackRetryMs = 1_000;

/** Delivers the chunks of one provider. */
export class ChunkDelivery {
  readonly #deps: Dependencies;
  /** The chunks that are being sent. */
  readonly #open = new Map<Promise<void>, TakenChunk>();
  /** When the next take may begin, by `performance.now()`: one for many small chunks costs as much as for one. */
  #nextTakeAt = 0;
  /** Resolves when a chunk has ended. */
  #room = Promise.withResolvers<void>();

  constructor(dependencies: Dependencies) {
    this.#deps = dependencies;
  }

  /**
   * Takes chunks, unless this process leaves them to others, and begins to send them.
   * @param stopping aborted when the process stops: messages in flight finish, and the rest goes back to the queue
   * @returns whether there were any, once there is room for more
   */
  async work(stopping: AbortSignal): Promise<boolean> {
    const { taker, states, rules } = this.#deps;
    if (!(await states.mayTake())) return false;
    const restMs = this.#nextTakeAt - performance.now();
    if (restMs > 0) await pause(restMs, stopping);
    if (this.#open.size >= rules.maxOpenChunks) await this.#room.promise;
    const open = [...this.#open.values()];
    // While the provider is probed, chunks are sent one after the other.
    const isWorking = states.state(wholeProvider) === "working";
    const most = {
      chunks: isWorking ? Math.min(rules.maxOpenChunks - open.length, mostChunks) : 1,
      retries:
        Math.ceil(rules.maxOpenChunks * rules.retryShare) - open.filter(({ isRetry }) => isRetry).length,
    };
    const held = open.map(({ id }) => id);
    const messages = this.#messages(rules);
    const chunks = await taker.take(messages, most, held);
    const taken = chunks.reduce((sum, { left }) => sum + left, 0);
    const isWorthIt = chunks.length === most.chunks || taken >= Math.min(messages, rules.fewMessages);
    this.#nextTakeAt = isWorthIt ? 0 : performance.now() + rules.takeGapMs;
    if (chunks.length > 0 || !isWorking) await states.load();
    await Promise.all(chunks.map((chunk) => this.#begin(chunk, stopping)));
    return chunks.length > 0;
  }

  /** Resolves when no chunk is being sent any more. */
  async idle(): Promise<void> {
    await Promise.all(this.#open.keys());
  }

  /** For how many messages chunks are taken: at most half of those that may be in flight wait for their room. */
  #messages({ sliceMs }: DeliveryRules): number {
    const { provider, budget, maxPerSecond } = this.#deps;
    const room = Math.max(budget.free, provider.maxInFlight / 2);
    const perSlice = maxPerSecond > 0 ? (maxPerSecond * sliceMs) / 1000 : room;
    return Math.max(1, Math.floor(Math.min(room, perSlice)));
  }

  /** Begins to send a chunk. @returns resolves when the next one may be taken */
  #begin(chunk: TakenChunk, stopping: AbortSignal): Promise<void> {
    const offered = Promise.withResolvers<void>();
    const delivery = this.#traced(chunk, () => this.#deliver(chunk, stopping, offered.resolve)).catch((err) =>
      this.#giveBack(chunk, err, stopping),
    );
    const open = delivery.finally(() => {
      this.#open.delete(open);
      this.#room.resolve();
      this.#room = Promise.withResolvers();
      offered.resolve();
    });
    this.#open.set(open, chunk);
    return offered.promise;
  }

  #traced(chunk: TakenChunk, work: () => Promise<void>): Promise<void> {
    return inQueueSpan(`deliver-${this.#deps.provider.name}`, String(chunk.id), chunk.trace, work);
  }

  async #deliver(chunk: TakenChunk, stopping: AbortSignal, next: () => void): Promise<void> {
    if (!isSendable(chunk)) return this.#setAside(chunk);
    const { provider, report, imageBaseUrl } = this.#deps;
    const devices = chunk.devices.map((device) => ({
      ...device,
      service: provider.serviceOf?.(device.token) ?? wholeProvider,
    }));
    const sendTo = prepareContent(provider, chunk, imageBaseUrl);
    const sending = startSending(this.#deps, chunk, sendTo, devices, { stopping, next });
    const attempt = new ChunkAttempt({ ...this.#deps, provider: provider.name }, chunk, sending);
    const { dead, isSentToEnd } = await attempt.finish();
    report.attemptEnded(chunk.notificationId, dead, (performance.now() - chunk.asOf) / 1000);
    if (isSentToEnd) await this.#adaptRate(chunk, sending.tally).catch(() => undefined);
  }

  /** Adapts the provider's rate to a chunk. The errors of one origin say nothing about the rate of all of them. */
  async #adaptRate({ share, isRetry }: TakenChunk, tally: Tally): Promise<void> {
    const { provider, rules, rateLimiter } = this.#deps;
    const errors = provider.serviceOf ? 1 : rules.toleratedErrors;
    if (!isRetry && tally.isThrottledBeyond(tally.size * errors)) await rateLimiter.lowerRate(share);
    else if (share < 1 && (errors === 1 || tally.retriesWithin(errors))) await rateLimiter.raiseRate();
  }

  async #setAside(chunk: TakenChunk): Promise<void> {
    const { db, report, completion } = this.#deps;
    const { dropped } = await setAside(db, chunk);
    report.dropped(dropped);
    // If this fails, the completion sweep does it.
    if (dropped > 0) await completion.ifDone(chunk.notificationId).catch(() => undefined);
  }

  /** Gives back a chunk whose sending has thrown, however long that takes: nobody else does while this process lives. */
  async #giveBack(chunk: TakenChunk, err: unknown, stopping: AbortSignal): Promise<void> {
    const { db, logger } = this.#deps;
    const { id: chunkId, notificationId } = chunk;
    if (err instanceof ChunkLostError) {
      logger.warn({ chunkId, notificationId }, "A chunk was taken over by another process");
      return;
    }
    logger.error({ err, chunkId, notificationId }, "The sending of a chunk failed and will be tried again");
    while (!stopping.aborted) {
      try {
        const isDead = await giveBack(db, chunk);
        if (isDead)
          logger.error(
            { chunkId, notificationId },
            "A chunk became a dead letter: it failed again and again",
          );
        return;
      } catch {
        await pause(giveBackRetryMs, stopping);
      }
    }
  }
}
