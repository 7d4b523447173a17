/** Watching a notification: its progress now, and after each change. Its watchers in this process share one poll. */
import { isDeepStrictEqual } from "node:util";
import { withRequestTimeout } from "../../platform/base/deadlines.ts";
import { pause } from "../../platform/base/loop.ts";
import type { Notifications } from "./notifications.ts";
import type { NotificationProgress } from "./progress.ts";

/**
 * Yields the progress, at most half a second old, and again whenever it has changed; a slow watcher misses states in
 * between. Ends after the final state, or when the signal is aborted.
 * @throws the errors of `notifications.get`
 */
export type WatchProgress = (id: string, signal: AbortSignal) => AsyncIterable<NotificationProgress>;

interface Dependencies {
  readonly notifications: Pick<Notifications, "get">;
  /** Milliseconds between two queries. */
  readonly intervalMs?: number;
}

/** The state that all watchers of one notification share. */
interface Poll {
  watchers: number;
  latest: NotificationProgress | undefined;
  failure: { readonly error: unknown } | undefined;
  /** Wakes each watcher that waits for a change. */
  readonly waiting: Set<() => void>;
}

export function createWatchProgress({ notifications, intervalMs = 500 }: Dependencies): WatchProgress {
  const polls = new Map<string, Poll>();

  function pollOf(id: string): Poll {
    const running = polls.get(id);
    if (running) return running;
    const poll: Poll = { watchers: 0, latest: undefined, failure: undefined, waiting: new Set() };
    polls.set(id, poll);
    void runPoll(id, poll);
    return poll;
  }

  /** Polls for as long as there are watchers; never rejects. */
  async function runPoll(id: string, poll: Poll): Promise<void> {
    try {
      do {
        const progress = await withRequestTimeout(notifications.get(id));
        if (!isDeepStrictEqual(progress, poll.latest)) poll.latest = progress;
        wake(poll);
        if (isFinal(progress)) break;
        await pause(intervalMs);
      } while (poll.watchers > 0);
    } catch (error) {
      poll.failure = { error };
    }
    // The next watcher starts a new poll.
    polls.delete(id);
    wake(poll);
  }

  return async function* watch(id, signal) {
    const poll = pollOf(id);
    poll.watchers += 1;
    try {
      let seen: NotificationProgress | undefined;
      while (!signal.aborted) {
        if (poll.latest !== undefined && poll.latest !== seen) {
          seen = poll.latest;
          yield seen;
          if (isFinal(seen)) return;
        } else if (poll.failure) throw poll.failure.error;
        else await nextChange(poll, signal);
      }
    } finally {
      poll.watchers -= 1;
    }
  };
}

/** Whether the progress is final, unless an operator replays a dead letter. */
function isFinal({ completedAt }: NotificationProgress): boolean {
  return completedAt !== null;
}

function wake({ waiting }: Poll): void {
  for (const resolve of [...waiting]) resolve();
}

/** Resolves when the poll may have something new, or the signal is aborted. */
function nextChange({ waiting }: Poll, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      waiting.delete(done);
      signal.removeEventListener("abort", done);
      resolve();
    };
    waiting.add(done);
    signal.addEventListener("abort", done, { once: true });
  });
}
