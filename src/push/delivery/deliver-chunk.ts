/**
 * The handler of one chunk's job: takes the chunk and has it sent, or returns it if it is not to be sent now. A message
 * whose response comes late keeps no other chunk waiting: the next chunk begins when the messages of this one are in
 * flight.
 */
import { randomUUID } from "node:crypto";
import { pause } from "../../platform/base/loop.ts";
import type { Database } from "../../platform/database/database.ts";
import type { Job, Jobs } from "../../platform/messaging/jobs.ts";
import { type DeliveryJob, deliveryQueue, waitingForProvider } from "../database.ts";
import type { ProviderName } from "../provider-settings.ts";
import { imageUrl } from "../providers/image-url.ts";
import type { NotificationContent } from "../providers/provider.ts";
import { type AttemptDependencies, ChunkAttempt } from "./chunk-attempt.ts";
import {
  type DeliveryDevice,
  loadDevices,
  type ReturnedChunk,
  returnChunk,
  type TakenChunk,
  takeChunk,
} from "./chunk-repository.ts";
import { DeliveryReport } from "./delivery-report.ts";
import type { Random } from "./delivery-rules.ts";
import { wholeProvider } from "./provider-pauses.ts";
import { type SendDependencies, startSending } from "./send-chunk.ts";
import type { Tally } from "./tally.ts";

/** Completes a notification if it has nothing left to plan or send. */
export type CompleteIfDone = (db: Database, notificationId: string) => Promise<unknown>;

interface Dependencies extends SendDependencies {
  readonly db: Database;
  readonly jobs: Pick<Jobs, "complete" | "enqueue">;
  readonly maxDeadPercent: number;
  readonly imageBaseUrl: string | undefined;
  readonly completeIfDone: CompleteIfDone;
  readonly random: Random;
}

/**
 * The longest wait of a worker whose provider is paused, in milliseconds: without it, it would requeue job after job.
 */
const maxPausedWaitMs = 1_000;

/** Delivers the chunks of one provider. */
export class ChunkDelivery {
  readonly #deps: Dependencies;
  readonly #provider: ProviderName;
  readonly #report: DeliveryReport;
  readonly #attemptDeps: AttemptDependencies;

  constructor(dependencies: Dependencies) {
    const { db, jobs, states, rules, random, logger, metrics, maxDeadPercent } = dependencies;
    const provider = dependencies.provider.name;
    this.#deps = dependencies;
    this.#provider = provider;
    this.#report = new DeliveryReport({ db, provider, logger, metrics });
    const storage = { db, jobs, provider, limits: { ...rules, maxDeadPercent } };
    this.#attemptDeps = { storage, states, rules, random, logger, report: this.#report };
  }

  /**
   * Handles a job of the provider's queue.
   * @param stopping aborted when the process stops: messages in flight finish, and the rest goes back to the queue
   * @param next called when the next job may be fetched
   */
  async handle(job: Job<DeliveryJob>, stopping: AbortSignal, next: () => void): Promise<void> {
    const chunk = await takeChunk(this.#deps.db, this.#provider, job);
    if (chunk) await this.#deliver(job, chunk, stopping, next);
    else await this.#return(job, stopping);
  }

  async #deliver(
    job: Job<DeliveryJob>,
    chunk: TakenChunk,
    stopping: AbortSignal,
    next: () => void,
  ): Promise<void> {
    const notificationId = chunk.notification.id;
    const devices = await this.#load(chunk);
    const gone = chunk.devices - devices.length;
    const counts = { ...chunk.counts, dropped: chunk.counts.dropped + gone };
    const content = contentOf(chunk, this.#deps.imageBaseUrl);
    const sending = startSending(this.#deps, chunk, content, devices, { stopping, next });
    const attempt = new ChunkAttempt(this.#attemptDeps, { job, chunk, counts, sending });
    const { settled, isSentToEnd } = await attempt.finish();
    this.#report.dropped(gone + settled.dropped);
    this.#report.attemptEnded(notificationId, settled, (performance.now() - chunk.asOf) / 1000);
    if (settled.isOver) await this.#complete(notificationId);
    if (isSentToEnd) await this.#adaptRate(chunk, sending.tally).catch(() => undefined);
  }

  /** Adapts the provider's rate to a chunk. The errors of one origin say nothing about the rate of all of them. */
  async #adaptRate({ share, isRetry }: TakenChunk, tally: Tally): Promise<void> {
    const { provider, rules, rateLimiter } = this.#deps;
    const errors = provider.serviceOf ? 1 : rules.toleratedErrors;
    if (!isRetry && tally.isThrottledBeyond(tally.size * errors)) await rateLimiter.lowerRate(share);
    else if (share < 1 && (errors === 1 || tally.retriesWithin(errors))) await rateLimiter.raiseRate();
  }

  /** The devices that are left to send to. The states of their services are loaded as well. */
  async #load(chunk: TakenChunk): Promise<DeliveryDevice[]> {
    const { db, provider, states } = this.#deps;
    const [found] = await Promise.all([loadDevices(db, this.#provider, chunk.id), states.load()]);
    return found.map((device) => ({
      ...device,
      service: provider.serviceOf?.(device.token) ?? wholeProvider,
    }));
  }

  /**
   * Handles the job of a chunk that could not be taken. While the provider is paused, the worker waits for a moment.
   */
  async #return(job: Job<DeliveryJob>, stopping: AbortSignal): Promise<void> {
    const returned = await this.#storeReturned(job);
    if (returned?.dropped !== undefined) {
      this.#report.dropped(returned.dropped);
      await this.#complete(returned.notificationId);
    }
    const { requeueInMs = 0 } = returned ?? {};
    if (requeueInMs === 0) return;
    this.#deps.metrics.paused(this.#provider, true);
    await pause(Math.min(requeueInMs, maxPausedWaitMs), stopping);
  }

  #storeReturned(job: Job<DeliveryJob>): Promise<ReturnedChunk | undefined> {
    const { db, jobs } = this.#deps;
    const queue = deliveryQueue(this.#provider);
    return db.transaction(async (tx) => {
      const nextJobId = randomUUID();
      const returned = await returnChunk(tx, this.#provider, job, nextJobId);
      if (returned?.requeueInMs !== undefined) {
        const data: DeliveryJob = { ...job.data, ...waitingForProvider };
        await jobs.enqueue(tx, queue, [
          { id: nextJobId, data, priority: job.priority, startAfterSeconds: returned.requeueInMs / 1000 },
        ]);
      }
      await jobs.complete(tx, queue, job);
      return returned;
    });
  }

  /** Completes the notification if nothing is left of it. If this fails, the completion sweep does it later. */
  async #complete(notificationId: string): Promise<void> {
    const { db, completeIfDone, logger } = this.#deps;
    await completeIfDone(db, notificationId).catch((err: unknown) => {
      logger.warn({ err, notificationId }, "A notification could not be completed yet");
    });
  }
}

function contentOf({ notification }: TakenChunk, imageBaseUrl: string | undefined): NotificationContent {
  const { id, title, message, image, expiresAt } = notification;
  return {
    notificationId: id,
    title,
    message,
    imageUrl: imageUrl(imageBaseUrl, image ?? undefined),
    expiresAt,
  };
}
