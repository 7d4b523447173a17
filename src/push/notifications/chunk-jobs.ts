/**
 * The jobs of chunks and their priorities. The chunk's row is authoritative: with its notification's state it decides
 * whether it is to be sent, it names the job that may take it, and its fence says which worker may write it. The job
 * only brings a worker to the row at a certain time, and another worker if the first one dies. A job that the chunk
 * does not name, as it comes twice or late, finds that there is nothing to do.
 */
import type { Database } from "../../platform/database/database.ts";
import type { Jobs } from "../../platform/messaging/jobs.ts";
import { type DeliveryJob, deliveryQueue, retryPriority } from "../database.ts";
import { type ProviderName, providerNames } from "../provider-settings.ts";

/** A chunk that is to be sent. */
export interface WaitingChunk {
  readonly id: number;
  readonly provider: ProviderName;
  /** The job that the chunk's row names. */
  readonly jobId: string;
  /** Its devices were tried before; if not given, they were not. */
  readonly isRetry?: boolean;
}

/** The number of the last chunk with a priority of its own: later chunks have the same one. */
const lastTurn = 1_000_000;

/**
 * Enqueues the jobs of chunks, in the caller's transaction. The n-th chunk of each notification has the same priority,
 * so that a small notification does not wait for a large one. Test runs come before all others. Chunks whose devices
 * were tried before come after all that were not, and among themselves in the same order.
 * @param chunks in the order in which they are to be sent
 * @param first number of the notification's chunks that come before these
 */
export async function enqueueChunks(
  tx: Database,
  jobs: Pick<Jobs, "enqueue">,
  chunks: readonly WaitingChunk[],
  { first, isTest }: { readonly first: number; readonly isTest: boolean },
): Promise<void> {
  const byProvider = new Map<ProviderName, { id: string; data: DeliveryJob; priority: number }[]>();
  for (const [index, { id, provider, jobId, isRetry }] of chunks.entries()) {
    const list = byProvider.get(provider) ?? [];
    const place = Math.min(first + index + 1, lastTurn);
    const priority = isRetry ? retryPriority - (isTest ? 0 : place) : isTest ? 1 : -place;
    list.push({ id: jobId, data: { chunkId: id }, priority });
    byProvider.set(provider, list);
  }
  for (const [provider, list] of byProvider) await jobs.enqueue(tx, deliveryQueue(provider), list);
}

/** Has this process look for chunks at once, after the transaction that enqueued them. */
export function wakeWorkers(jobs: Pick<Jobs, "wake">): void {
  for (const provider of providerNames) jobs.wake(deliveryQueue(provider));
}
