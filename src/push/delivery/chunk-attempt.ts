/**
 * An attempt at a chunk that this process has taken: from its first message until all results are stored. If the
 * process dies, the messages without a stored outcome are sent again with the same ids, and no others.
 */
import { isDatabaseUnavailable } from "../../platform/base/database-errors.ts";
import { pause } from "../../platform/base/loop.ts";
import type { Database } from "../../platform/database/database.ts";
import type { shareTransactions } from "../../platform/database/shared-transactions.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import type { ProviderName } from "../provider-settings.ts";
import { type DeviceOutcome, storeOutcomes } from "../queue/store-outcomes.ts";
import {
  ChunkLostError,
  type Part,
  type Results,
  storeResults,
  type WrittenChunk,
} from "../queue/store-results.ts";
import type { SendableChunk } from "../queue/take-chunks.ts";
import type { DeliveryReport } from "./delivery-report.ts";
import type { DeliveryRules, Random } from "./delivery-rules.ts";
import { nextTries, own, partsOf, untriedPart } from "./next-try.ts";
import type { Removals, StopLimits } from "./removal-stop.ts";
import { recordDead, recordResponses } from "./removals.ts";
import type { Sending } from "./send-chunk.ts";
import type { ServiceStates } from "./service-states.ts";
import type { Outcomes } from "./tally.ts";

/** How a notification completes, when nothing of it is left. */
export interface Completion {
  /** Completes it if nothing is left. Outside of any transaction. */
  ifDone(notificationId: string): Promise<unknown>;
  /** Locks it, until the end of the transaction. */
  lock(tx: Database, notificationId: string): Promise<unknown>;
  /** Completes it if nothing is left, in a transaction that has locked it. */
  inTransaction(tx: Database, notificationId: string): Promise<unknown>;
}

export interface AttemptDependencies {
  readonly db: Database;
  /** Stores the results of small notifications, of which many may end at once. */
  readonly inSharedTransaction: ReturnType<typeof shareTransactions>;
  readonly provider: ProviderName;
  readonly limits: StopLimits;
  readonly states: ServiceStates;
  readonly rules: DeliveryRules;
  readonly random: Random;
  readonly report: DeliveryReport;
  readonly completion: Completion;
  readonly logger: Logger;
}

/** What storing results has led to. */
interface Stored {
  /** The chunk, and those that were made of its parts. */
  readonly chunks: readonly WrittenChunk[];
  readonly removals: Removals;
}

/** The end of an attempt. */
interface Ended {
  /** The chunks whose devices were given up. */
  readonly dead: readonly WrittenChunk[];
  /** Whether the chunk was sent to its end, and not stopped. */
  readonly isSentToEnd: boolean;
}

/** Milliseconds between tries to store results. */
const storeRetryMs = 1_000;

export class ChunkAttempt {
  readonly #deps: AttemptDependencies;
  readonly #chunk: SendableChunk;
  readonly #sending: Sending;
  /** How many devices have failed, by reason. */
  readonly #failures: Record<string, number>;
  /** Devices that are gone, until their number is stored. */
  #gone: number;
  #writes = 0;

  constructor(dependencies: AttemptDependencies, chunk: SendableChunk, sending: Sending) {
    this.#deps = dependencies;
    this.#chunk = chunk;
    this.#sending = sending;
    this.#failures = { ...chunk.failures };
    this.#gone = chunk.left - chunk.devices.length;
  }

  /** Resolves when all results are stored. @throws ChunkLostError if another process has the chunk by now */
  async finish(): Promise<Ended> {
    await this.#storeMeanwhile();
    const reason = await this.#sending.ended;
    if (reason === "lost") throw new ChunkLostError(`another process has chunk ${this.#chunk.id}`);
    return { dead: await this.#settle(), isSentToEnd: reason === undefined };
  }

  /** Stores outcomes while other messages of the chunk have no response yet. */
  async #storeMeanwhile(): Promise<void> {
    const { rules } = this.#deps;
    const { ended, stop, tally } = this.#sending;
    const over = new AbortController();
    const end = () => over.abort();
    void ended.then(end, end);
    try {
      for (let waitMs = rules.storeAfterMs; ; waitMs = Math.min(2 * waitMs, rules.storeEveryMs)) {
        await pause(waitMs, over.signal);
        if (over.signal.aborted) return;
        const untried = this.#sending.takeUntried();
        if (!tally.hasFresh && untried.length === 0) continue;
        const rest = untried.length > 0 ? [untriedPart(this.#chunk, untried, this.#sending.restMs)] : [];
        await this.#store([own(this.#chunk, "TAKEN", tally.open), ...rest]);
      }
    } catch (err) {
      stop("lost");
      await ended;
      throw err;
    }
  }

  /** Stores the last outcomes, and what becomes of the devices that are left. */
  async #settle(): Promise<WrittenChunk[]> {
    const { states, rules, random, report } = this.#deps;
    const { tally } = this.#sending;
    const left = tally.conclude(states);
    const tries = nextTries(this.#chunk, left, states, tally.reason, rules, random);
    const { chunks } = await this.#store(partsOf(tries, states, this.#sending.restMs));
    for (const next of tries) report.waiting(this.#chunk.notificationId, next);
    if (chunks.every(isOver)) await this.#complete();
    return chunks.filter((chunk) => chunk.state === "DEAD");
  }

  /** @param kept what the chunk becomes; the other parts become chunks of their own */
  async #store([kept = own(this.#chunk, "DONE"), ...others]: readonly Part[]): Promise<Stored> {
    const { report } = this.#deps;
    const outcomes = this.#sending.tally.take();
    const { sent, failed, dead } = outcomes.counts;
    outcomes.addTo(this.#failures);
    const dropped = this.#gone;
    this.#gone = 0;
    this.#writes += 1;
    const write = this.#writes;
    const results = { write, sent, failed: failed + dead, dropped, failures: this.#failures, kept, others };
    outcomes.each?.push(...this.#deadLettered([kept, ...others]));
    const stored = await this.#withRetries((before) => this.#transaction(results, outcomes, before));
    report.dropped(dropped);
    await report.stored(this.#chunk.notificationId, outcomes, stored.removals);
    return stored;
  }

  /** The outcomes of the devices that are given up. */
  #deadLettered(parts: readonly Part[]): DeviceOutcome[] {
    const users = new Map(this.#chunk.devices.map(({ id, userId }) => [id, userId]));
    return parts
      .filter(({ state }) => state === "DEAD")
      .flatMap(({ devices, reason }) =>
        devices.map((deviceId) => ({
          ...{ userId: users.get(deviceId) ?? "", deviceId, reason },
          outcome: "DEAD_LETTERED" as const,
        })),
      );
  }

  /** @param before what an earlier try has led to, whose commit was not seen */
  #transaction(results: Results, outcomes: Outcomes, before: { stored?: Stored }): Promise<Stored> {
    const { db, inSharedTransaction, provider, limits, completion } = this.#deps;
    const { notification, notificationId } = this.#chunk;
    const isWhole = results.kept.state !== "TAKEN" && notification.isOneChunk;
    const store = async (tx: Database) => {
      // The notification is locked before its chunks.
      if (isWhole) await completion.lock(tx, notificationId);
      const chunks = await storeResults(tx, this.#chunk, results);
      if (chunks === undefined) {
        if (before.stored) return before.stored;
        throw new ChunkLostError(`chunk ${this.#chunk.id} is gone`);
      }
      // Before the notification completes and its users go, and before the reports of dead devices, as in `forgetUser`.
      await storeOutcomes(tx, { notificationId, provider }, outcomes.each ?? []);
      if (isWhole && chunks.every(isOver)) await completion.inTransaction(tx, notificationId);
      // Last, since all workers of a provider meet in its row if the removals are stopped.
      let removals: Removals = { isHeld: false, stoppedAt: undefined };
      if (this.#isProviderBelieved) {
        await recordResponses(tx, provider, outcomes);
        if (outcomes.dead.length > 0) removals = await recordDead(tx, provider, outcomes.dead, limits);
      }
      before.stored = { chunks, removals };
      return before.stored;
    };
    return isWhole ? inSharedTransaction(store) : db.transaction(store);
  }

  /** If this fails, the completion sweep does it later. */
  async #complete(): Promise<void> {
    const { completion, logger } = this.#deps;
    const { notificationId, notification } = this.#chunk;
    if (notification.isOneChunk) return;
    await completion.ifDone(notificationId).catch((err: unknown) => {
      logger.warn({ err, notificationId }, "A notification could not be completed yet");
    });
  }

  /** A provider that refuses our credentials or project is not reliable about tokens either. */
  get #isProviderBelieved(): boolean {
    const { states } = this.#deps;
    return !this.#sending.tally.services.values().some((service) => states.refuses(service));
  }

  /** What was sent is stored nowhere yet, so the process waits for an unavailable database instead of sending again. */
  async #withRetries<T>(store: (before: { stored?: Stored }) => Promise<T>): Promise<T> {
    const before = {};
    for (;;) {
      try {
        return await store(before);
      } catch (err) {
        if (!isDatabaseUnavailable(err)) throw err;
        this.#deps.logger.warn(
          { err, chunkId: this.#chunk.id },
          "The results of a chunk could not be stored yet",
        );
        await pause(storeRetryMs);
      }
    }
  }
}

const isOver = ({ state }: WrittenChunk) => state === "DONE" || state === "DEAD";
