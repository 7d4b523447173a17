/**
 * Delivery: takes the chunks that planning has made and sends them, within a rate limit that all processes share. The
 * chunks that a process sends to a provider share the messages in flight: while the last messages of one chunk wait
 * for their responses, the next chunk is sent. A crash repeats at most the messages in flight and those whose outcome
 * came just before.
 */
import type { Loop } from "../../platform/base/loop.ts";
import type { Database, Reads } from "../../platform/database/database.ts";
import type { Job, Jobs } from "../../platform/messaging/jobs.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import type { Metrics } from "../../platform/observability/metrics.ts";
import { type DeliveryJob, deliveryQueue, failedJobQueue, type PlanJob, retryPriority } from "../database.ts";
import type { ProviderName } from "../provider-settings.ts";
import type { PushProvider } from "../providers/provider.ts";
import type { RemoveDeadDevices } from "./dead-reports.ts";
import { ChunkDelivery, type CompleteIfDone } from "./deliver-chunk.ts";
import { createDeliveryMetrics } from "./delivery-metrics.ts";
import { type DeliveryRules, deliveryRules, type Random } from "./delivery-rules.ts";
import { InFlightBudget } from "./in-flight-budget.ts";
import { ProviderPauses } from "./provider-pauses.ts";
import { ProviderRateLimiter } from "./rate-limiter.ts";
import { startRemovals } from "./removals.ts";
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
  readonly db: Database;
  /** For the checks whether sending may go on, which must not wait behind what is stored. */
  readonly reads: Reads;
  readonly jobs: Jobs;
  /** The providers in use. */
  readonly providers: ReadonlyMap<ProviderName, PushProvider>;
  readonly settings: DeliverySettings;
  readonly rules?: Partial<DeliveryRules>;
  readonly random?: Random;
  readonly logger: Logger;
  readonly metrics: Pick<Metrics, "registry" | "counter">;
  readonly completeIfDone: CompleteIfDone;
  readonly removeDeadDevices: RemoveDeadDevices;
  /** Handles a job that failed for good, of any queue. */
  readonly handleFailedJob: (job: Job<DeliveryJob | PlanJob>, stopping: AbortSignal) => Promise<void>;
  /** Milliseconds between polls of a queue that was empty. */
  readonly idleMs?: number;
}

/**
 * Starts a loop for each provider, and one for jobs that failed for good. `jobs` must have been started.
 * @returns stops the loops: messages in flight finish, and the rest of their chunks goes back to the queue at once
 */
export function startDelivery(dependencies: Dependencies): Loop {
  const {
    db,
    reads,
    jobs,
    providers,
    settings,
    random = Math.random,
    logger,
    handleFailedJob,
  } = dependencies;
  const { completeIfDone, removeDeadDevices } = dependencies;
  const { maxPerSecond, rampSeconds, maxDeadPercent, removalDelaySeconds, imageBaseUrl } = settings;
  const rules = { ...deliveryRules, ...dependencies.rules };
  const metrics = createDeliveryMetrics(dependencies.metrics, [...providers.keys()]);
  const check = new SendabilityCheck(reads, rules.checkIntervalMs);
  const idle = dependencies.idleMs === undefined ? {} : { idleMs: dependencies.idleMs };
  const common = { db, jobs, check, rules, random, logger, metrics };
  const outside = { completeIfDone, maxDeadPercent, imageBaseUrl };
  const workers = [...providers.values()].map((provider) => {
    const { name } = provider;
    const rateLimiter = new ProviderRateLimiter({ db, provider: name, maxPerSecond, rampSeconds, rules });
    const pauses = new ProviderPauses({ db, jobs, provider: name, rules, random });
    const states = new ServiceStates({ provider, pauses, rules, logger, metrics });
    void states.checkCredentials();
    const budget = new InFlightBudget(provider.maxInFlight, rules.retryShare);
    const delivery = new ChunkDelivery({ ...common, ...outside, provider, budget, rateLimiter, states });
    return jobs.work<DeliveryJob>({
      queue: deliveryQueue(name),
      handle: (job, stopping, next) => delivery.handle(job, stopping, next),
      atOnce: rules.maxOpenChunks,
      lowPriority: { priority: retryPriority, atOnce: Math.ceil(rules.maxOpenChunks * rules.retryShare) },
      ...idle,
    });
  });
  workers.push(
    startRemovals({
      db,
      providers: [...providers.keys()],
      removeDeadDevices,
      logger,
      limits: { ...rules, maxDeadPercent, removalDelaySeconds },
    }),
    jobs.work<DeliveryJob | PlanJob>({ queue: failedJobQueue, handle: handleFailedJob, ...idle }),
  );
  return {
    async stop() {
      await Promise.all(workers.map((worker) => worker.stop()));
    },
  };
}
