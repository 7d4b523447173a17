/** The push service's part of the database: its migrations and its job queues. */

import type { Migrations } from "../platform/database/migrations/migrations.ts";
import { type JobTables, jobSchema } from "../platform/messaging/jobs.ts";
import { type ProviderName, providerNames } from "./provider-settings.ts";

/**
 * The queue of the first ranges of notifications, which are small; data: {@link PlanJob}. It has workers of its own, so
 * that a notification begins while a large range of another one is planned.
 */
export const planQueue = "plan";

/** The queue of the other ranges; data: {@link PlanJob}. */
export const planRestQueue = "plan-rest";

/** The queue of notifications whose chunks are to follow an operator's decision; data: {@link FollowJob}. */
export const followQueue = "follow";

/** The queue of the replays of many dead letters; data: {@link ReplayJob}. */
export const replayQueue = "replay";

/** The queue of jobs that failed for good; the data is that of the queue from which the job came. Its name is older. */
export const failedJobQueue = "dead-letters";

/** The queue of the chunks to send through this provider; data: {@link DeliveryJob}. */
export function deliveryQueue(provider: ProviderName): string {
  return `deliver-${provider}`;
}

export interface PlanJob {
  readonly notificationId: string;
}

export interface FollowJob {
  readonly notificationId: string;
  /** The number of chunks that got their jobs back since the notification was resumed. */
  readonly released: number;
}

export interface ReplayJob {
  /** The id of a chunk: the dead letters up to this id have been replayed. */
  readonly after: number;
  /** The id of the last chunk to be replayed. */
  readonly through: number;
  /** The notification whose dead letters are replayed; all notifications unless given. */
  readonly notificationId?: string;
  /** The provider whose dead letters are replayed; all providers unless given. */
  readonly provider?: ProviderName;
}

export interface DeliveryJob {
  readonly chunkId: number;
  /**
   * The event for which the job waits. `provider`: the end of a pause of its provider, or of one of its services.
   * `answer`: the provider's next response to any message.
   */
  readonly waits?: "provider" | "answer";
}

/** The part of a job's data by which the jobs are found that wait for the end of a pause. */
export const waitingForProvider = { waits: "provider" } as const satisfies Partial<DeliveryJob>;

/** The part of a job's data by which the jobs are found that wait for a response of their provider after a silence. */
export const waitingForResponse = { waits: "answer" } as const satisfies Partial<DeliveryJob>;

/**
 * The highest priority of retries, which come after all chunks that were not tried. Retries in an order are below it.
 */
export const retryPriority = -2_000_000;

/** Tries after which a job that throws, or whose worker dies, is a dead letter. */
const retryLimit = 10;

/**
 * The retries, in effect unlimited, of queues without a dead-letter queue: a job lost there would leave its chunk or
 * its planning open for good. Only a defect or a broken database makes such a job fail, and a retry a minute costs
 * little.
 */
const unlimitedRetries = 1_000_000;

export const pushJobTables: JobTables = {
  schema: "push_jobs",
  queues: [
    { name: failedJobQueue, retryLimit: unlimitedRetries },
    { name: followQueue, retryLimit: unlimitedRetries },
    { name: replayQueue, retryLimit: unlimitedRetries },
    { name: planQueue, retryLimit, deadLetter: failedJobQueue },
    { name: planRestQueue, retryLimit, deadLetter: failedJobQueue },
    ...providerNames.map((provider) => ({
      name: deliveryQueue(provider),
      retryLimit,
      deadLetter: failedJobQueue,
    })),
  ],
};

export const pushMigrations: Migrations = {
  schema: "push",
  folder: new URL("../../drizzle/push", import.meta.url),
  librarySchemas: [jobSchema(pushJobTables)],
};
