/** What the push service keeps: the history of its schema's migrations, and its job queues. */

import type { Migrations } from "../platform/database/migrations.ts";
import { type JobTables, jobSchema } from "../platform/messaging/jobs.ts";
import { type ProviderName, providerNames } from "./provider-settings.ts";

/** The planning of a notification; data: {@link PlanJob}. */
export const planQueue = "plan";

/** Jobs that failed for good, each the data of the queue that it came from. */
export const deadLetterQueue = "dead-letters";

/** The queue of the chunks that go out through this provider; data: {@link DeliveryJob}. */
export function deliveryQueue(provider: ProviderName): string {
  return `deliver-${provider}`;
}

export interface PlanJob {
  readonly notificationId: string;
}

export interface DeliveryJob {
  readonly chunkId: number;
}

/** Tries after which a job that throws, or whose worker dies, is a dead letter. */
const retryLimit = 10;

/**
 * Never: there is no queue behind that one, and a dead letter that is lost leaves its chunk or its planning open for
 * good. Once a minute is little for what only a defect or a broken database can hold up.
 */
const deadLetterRetryLimit = 1_000_000;

export const pushJobTables: JobTables = {
  schema: "push_jobs",
  queues: [
    { name: deadLetterQueue, retryLimit: deadLetterRetryLimit },
    { name: planQueue, retryLimit, deadLetter: deadLetterQueue },
    ...providerNames.map((provider) => ({
      name: deliveryQueue(provider),
      retryLimit,
      deadLetter: deadLetterQueue,
    })),
  ],
};

export const pushMigrations: Migrations = {
  schema: "push",
  folder: new URL("../../drizzle/push", import.meta.url),
  librarySchemas: [jobSchema(pushJobTables)],
};
