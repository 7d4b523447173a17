/**
 * Delivery: takes the chunks that planning has made and sends them, within a rate limit that all processes share. A
 * crash repeats at most the messages in flight and those whose outcome came just before.
 */
import { every, type Loop, startWorker, type WakeUps } from "../../platform/base/loop.ts";
import type { OpenDatabase } from "../../platform/database/database.ts";
import { shareTransactions } from "../../platform/database/shared-transactions.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import type { Metrics } from "../../platform/observability/metrics.ts";
import type { ProviderName } from "../provider-settings.ts";
import type { PushProvider } from "../providers/provider.ts";
import { endDueWaits } from "../queue/give-back.ts";
import { Processes } from "../queue/processes.ts";
import { ChunkTaker } from "../queue/take-chunks.ts";
import type { Work } from "../queue/work.ts";
import type { Completion } from "./chunk-attempt.ts";
import { ChunkDelivery } from "./deliver-chunk.ts";
import { createDeliveryMetrics, DeliveryReport } from "./delivery-report.ts";
import { type DeliveryRules, deliveryRules, type Random } from "./delivery-rules.ts";
import { InFlightBudget } from "./in-flight-budget.ts";
import { showPauses } from "./pause-metrics.ts";
import { loadPaused, ProviderPauses } from "./provider-pauses.ts";
import { ProviderRateLimiter } from "./rate-limiter.ts";
import { startRemovals } from "./removals.ts";
import { createSendRate } from "./send-rate.ts";
import { SendabilityCheck } from "./sendability-check.ts";
import { ServiceStates } from "./service-states.ts";

export interface DeliverySettings {
  /** Messages a second to one provider, over all processes; 0: no limit. */
  readonly maxPerSecond: number;
  /** Seconds in which a notification's rate rises to `maxPerSecond`; 0: at once. */
  readonly rampSeconds: number;
  /** Percent of the provider's last users; if more of them are reported dead, no dead device is removed. */
  readonly maxDeadPercent: number;
  /** Seconds from the report of a dead device to its removal. */
  readonly removalDelaySeconds: number;
  /** Base URL of images, without a trailing slash. */
  readonly imageBaseUrl?: string | undefined;
}

interface Dependencies {
  /** `reads` runs the checks whether sending may go on, which must not wait behind what is stored. */
  readonly database: Pick<OpenDatabase, "db" | "reads" | "leases">;
  readonly wakeUps: WakeUps<Work>;
  /** The providers in use. */
  readonly providers: ReadonlyMap<ProviderName, PushProvider>;
  readonly settings: DeliverySettings;
  readonly rules?: Partial<DeliveryRules>;
  readonly random?: Random;
  readonly logger: Logger;
  readonly metrics: Pick<Metrics, "registry" | "counter" | "gauges">;
  readonly completion: Completion;
  /** Milliseconds between looks at an empty queue. */
  readonly idleMs?: number;
}

/** Transactions that store results of small notifications at once: two, so that they keep up with acceptance. */
const storing = 2;

/** What runs. */
interface Delivery extends Loop {
  /** The providers to which this process alone sends nothing, and why, in a few words for an operator. */
  warnings(): { readonly name: string; readonly reason: string }[];
}

/**
 * Starts a worker for each provider, the beat of this process, and the loops of what waits and what is removed.
 * @returns stops them: messages in flight finish, and the rest of their chunks goes back to the queue at once
 */
export function startDelivery(dependencies: Dependencies): Delivery {
  const { database, wakeUps, providers, settings, completion, logger } = dependencies;
  const { random = Math.random, idleMs = 500 } = dependencies;
  const { maxPerSecond, rampSeconds, maxDeadPercent, removalDelaySeconds, imageBaseUrl } = settings;
  const { db, reads, leases } = database;
  const rules = { ...deliveryRules, ...dependencies.rules };
  const limits = { ...rules, maxDeadPercent, removalDelaySeconds };
  const metrics = createDeliveryMetrics(dependencies.metrics, [...providers.keys()]);
  const check = new SendabilityCheck(reads, rules.checkIntervalMs);
  const released = () => wakeUps.wake("chunks");
  const processes = new Processes({ db, leases, logger, released });
  const sendRate = createSendRate(db, rules);
  const inSharedTransaction = shareTransactions(db, storing);
  const common = {
    ...{ db, inSharedTransaction, check, sendRate, rules, random },
    ...{ logger, metrics, limits, completion, imageBaseUrl },
  };
  const allStates: ServiceStates[] = [];
  const ownFaults = () => allStates.flatMap((states) => states.ownFaults());
  const ownPauses = () => ownFaults().filter(({ isShared }) => !isShared);
  showPauses(dependencies.metrics, [...providers.keys()], () => loadPaused(db), ownPauses);
  const loops: Loop[] = [...providers.values()].map((provider) => {
    const { name } = provider;
    const rateLimiter = new ProviderRateLimiter({ db, provider: name, maxPerSecond, rampSeconds, rules });
    const pauses = new ProviderPauses({ db, provider: name, processes, rules, random, released });
    const states = new ServiceStates({ provider, pauses, rules, random, logger });
    allStates.push(states);
    void states.checkCredentials();
    const budget = new InFlightBudget(provider.maxInFlight, rules.retryShare);
    const report = new DeliveryReport({ db, provider: name, logger, metrics });
    const taker = new ChunkTaker(db, processes, name);
    const delivery = new ChunkDelivery({
      ...common,
      ...{ provider, budget, rateLimiter, states, report, taker, maxPerSecond },
    });
    const worker = startWorker({
      ...{ wakeUps, kind: "chunks" as const, idleMs },
      work: (stopping) => delivery.work(stopping),
      onError: (err) =>
        logger.warn({ err, provider: name }, "No chunk could be taken; the next try follows soon"),
    });
    return {
      async stop() {
        await worker.stop();
        await delivery.idle();
      },
    };
  });
  const beats = processes.start();
  loops.push(
    startRemovals({ db, providers: [...providers.keys()], logger, limits }),
    every(
      idleMs,
      async () => {
        if ((await endDueWaits(db)) > 0) released();
      },
      (err) => logger.warn({ err }, "Chunks that are due could not be put back into the queue yet"),
    ),
  );
  return {
    warnings: () =>
      ownFaults().map(({ provider, origin, cause, reason }) => ({
        name: `push ${origin ?? provider}`,
        reason: `${cause}: ${reason}`,
      })),
    async stop() {
      await Promise.all(loops.map((loop) => loop.stop()));
      await beats.stop();
      await processes.leave().catch((err: unknown) => {
        logger.warn({ err }, "This process could not leave the queue; others find that it has ended");
      });
    },
  };
}
