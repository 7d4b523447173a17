/**
 * The jobs of chunks, and their turn among those of other notifications. The chunk's row is the truth: its state says
 * whether it is to be sent, its attempt who may write it. Its job says only that a worker is to look at the row, when,
 * and whether that worker still lives. Both exist because a row that is held, done or dead has no job, and because a
 * job can come twice or late: it then finds in the row that there is nothing to do.
 */
import type { Database } from "../../platform/database/database.ts";
import type { Jobs } from "../../platform/messaging/jobs.ts";
import { type DeliveryJob, deliveryQueue } from "../database.ts";
import type { ProviderName } from "../provider-settings.ts";

/** A chunk that is to be sent. */
export interface WaitingChunk {
  readonly id: number;
  readonly provider: ProviderName;
}

/** Beyond this all chunks have the same turn. */
const lastTurn = 1_000_000;

/**
 * Promises the sending of chunks, in the transaction. Each notification's n-th chunk has its turn with the n-th
 * ones of others, so that a small send is not stuck behind a million; test runs are before all.
 * @param chunks in the order in which they are to be sent
 * @param first how many chunks of the notification come before
 */
export async function enqueueChunks(
  tx: Database,
  jobs: Pick<Jobs, "enqueue">,
  chunks: readonly WaitingChunk[],
  { first, isTest }: { readonly first: number; readonly isTest: boolean },
): Promise<void> {
  const byProvider = new Map<ProviderName, { data: DeliveryJob; priority: number }[]>();
  for (const [index, { id, provider }] of chunks.entries()) {
    const list = byProvider.get(provider) ?? [];
    const priority = isTest ? 1 : -Math.min(first + index + 1, lastTurn);
    list.push({ data: { chunkId: id }, priority });
    byProvider.set(provider, list);
  }
  for (const [provider, list] of byProvider) await jobs.enqueue(tx, deliveryQueue(provider), list);
}
