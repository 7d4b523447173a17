/**
 * A worker's attempt at a chunk that it has taken: from the first message to the end of the chunk's job. Outcomes are
 * stored while other messages wait for their responses; the last of them are stored in the transaction that ends the
 * job. If the process dies, the messages without a stored outcome are sent again with the same ids, and no others.
 */
import { randomUUID } from "node:crypto";
import { isDatabaseUnavailable, sqlState } from "../../platform/base/database-errors.ts";
import { pause } from "../../platform/base/loop.ts";
import { type Job, JobLostError } from "../../platform/messaging/jobs.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import type { DeliveryJob } from "../database.ts";
import type { ChunkCounts, TakenChunk } from "./chunk-repository.ts";
import type { DeliveryReport } from "./delivery-report.ts";
import type { DeliveryRules, Random } from "./delivery-rules.ts";
import { nextTries } from "./next-try.ts";
import type { Sending } from "./send-chunk.ts";
import type { ServiceStates } from "./service-states.ts";
import {
  type Attempted,
  type ChunkStorage,
  type Removals,
  type Settled,
  settleChunk,
  storeOutcomes,
} from "./settle-chunk.ts";

export interface AttemptDependencies {
  readonly storage: ChunkStorage;
  readonly states: ServiceStates;
  readonly rules: DeliveryRules;
  readonly random: Random;
  readonly report: DeliveryReport;
  readonly logger: Logger;
}

/** The chunk that a worker has taken, and its sending, which has begun. */
interface Begun {
  readonly job: Job<DeliveryJob>;
  readonly chunk: TakenChunk;
  /** What has become of the chunk's devices, those included to which nothing was sent because they are gone. */
  readonly counts: ChunkCounts;
  readonly sending: Sending;
}

/** The end of an attempt. */
interface Ended {
  readonly settled: Settled;
  /** Whether the chunk was sent to its end, and not stopped. */
  readonly isSentToEnd: boolean;
}

/** Milliseconds between tries to store a chunk's results. */
const storeRetryMs = 1_000;

export class ChunkAttempt {
  readonly #deps: AttemptDependencies;
  readonly #job: Job<DeliveryJob>;
  readonly #chunk: TakenChunk;
  readonly #sending: Sending;
  /** What is stored of the chunk by now. */
  #counts: ChunkCounts;

  constructor(dependencies: AttemptDependencies, { job, chunk, counts, sending }: Begun) {
    this.#deps = dependencies;
    this.#job = job;
    this.#chunk = chunk;
    this.#counts = counts;
    this.#sending = sending;
  }

  /** Resolves when the chunk is settled. @throws JobLostError if another worker has the chunk or its job by now */
  async finish(): Promise<Ended> {
    await this.#storeMeanwhile();
    const reason = await this.#sending.ended;
    if (reason === "lost") throw new JobLostError(`another worker has taken chunk ${this.#chunk.id}`);
    return { settled: await this.#settle(), isSentToEnd: reason === undefined };
  }

  /** Stores outcomes while other messages of the chunk have no response yet. */
  async #storeMeanwhile(): Promise<void> {
    const { rules } = this.#deps;
    const { ended, stop } = this.#sending;
    const over = new AbortController();
    const end = () => over.abort();
    void ended.then(end, end);
    try {
      for (let waitMs = rules.storeAfterMs; ; waitMs = Math.min(2 * waitMs, rules.storeEveryMs)) {
        await pause(waitMs, over.signal);
        if (over.signal.aborted) return;
        await this.#storeFresh();
      }
    } catch (err) {
      // The chunk has another worker by now, or the results of a minute could not be stored.
      stop("lost");
      await ended;
      throw err;
    }
  }

  /** Stores what is new since the last time, if anything is, and splits off the devices that were given up untried. */
  async #storeFresh(): Promise<void> {
    const { storage, report } = this.#deps;
    const { tally } = this.#sending;
    const untried = this.#sending.takeUntried();
    if (!tally.hasFresh && untried.length === 0) return;
    const { open } = tally;
    const outcomes = tally.take();
    this.#counts = outcomes.addedTo(this.#counts);
    const responses = this.#isProviderBelieved ? outcomes : undefined;
    const rest = { devices: untried, jobId: randomUUID() };
    const result = { counts: this.#counts, responses, open, rest };
    const attempted: Attempted<Removals> = {};
    const store = () => storeOutcomes(storage, this.#job, this.#chunk, result, attempted);
    const removals = await this.#withRetries(store);
    await report.stored(this.#chunk.notification.id, outcomes, removals);
  }

  /** Stores the last outcomes, and what becomes of the devices that are left. */
  async #settle(): Promise<Settled> {
    const { storage, states, rules, random, report } = this.#deps;
    const { tally } = this.#sending;
    const left = tally.conclude({
      isHealthy: (service) => states.isHealthy(service),
      causeOf: (service) => states.causeOf(service),
    });
    const state = (service: string) => states.state(service);
    const tries = nextTries(this.#chunk, left, { state, reason: tally.reason }, rules, random);
    const outcomes = tally.take();
    const counts = outcomes.addedTo(this.#counts);
    const result = { counts, responses: this.#isProviderBelieved ? outcomes : undefined, tries };
    const attempted: Attempted<Settled> = {};
    const settle = () => settleChunk(storage, this.#job, this.#chunk, result, attempted);
    const settled = await this.#withRetries(settle);
    for (const next of tries) report.waiting(this.#chunk.notification.id, next);
    await report.stored(this.#chunk.notification.id, outcomes, settled);
    return settled;
  }

  /** A provider that refuses our credentials or project is not reliable about tokens either. */
  get #isProviderBelieved(): boolean {
    const { states } = this.#deps;
    return !this.#sending.tally.services.values().some((service) => states.refuses(service));
  }

  /** What was sent is stored nowhere yet, so the process waits for an unavailable database instead of sending again. */
  async #withRetries<T>(store: () => Promise<T>): Promise<T> {
    const { rules, logger } = this.#deps;
    const until = performance.now() + rules.settleTimeoutMs;
    for (;;) {
      try {
        return await store();
      } catch (err) {
        if (!isTemporary(err) || performance.now() > until) throw err;
        logger.warn({ err, chunkId: this.#chunk.id }, "The results of a chunk could not be stored yet");
        await pause(storeRetryMs);
      }
    }
  }
}

/** Whether the database is unavailable, or a transaction met a serialization failure or a deadlock. */
function isTemporary(thrown: unknown): boolean {
  return isDatabaseUnavailable(thrown) || ["40001", "40P01"].includes(sqlState(thrown) ?? "");
}
