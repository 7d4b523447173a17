/**
 * Watching a notification: its progress as it stands, then each time that it has changed. All who watch the
 * same one in this process share one poll, so that watchers cost the database nothing.
 */
import { isDeepStrictEqual } from "node:util";
import { withTimeout } from "../../platform/base/deadlines.ts";
import { pause } from "../../platform/base/loop.ts";
import type { Notifications } from "./notifications.ts";
import type { NotificationProgress } from "./progress.ts";

/**
 * Yields the progress, at most half a second old, then whenever it has changed; a watcher who is slow misses
 * what was in between. Ends after the final state, or when the signal is aborted.
 * @throws what `notifications.get` throws
 */
export type WatchProgress = (id: string, signal: AbortSignal) => AsyncIterable<NotificationProgress>;

interface Dependencies {
  readonly notifications: Pick<Notifications, "get">;
  /** Milliseconds between two looks. */
  readonly intervalMs?: number;
}

/** What all watchers of one notification share. */
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
    const known = polls.get(id);
    if (known) return known;
    const poll: Poll = { watchers: 0, latest: undefined, failure: undefined, waiting: new Set() };
    polls.set(id, poll);
    void look(id, poll);
    return poll;
  }

  /** Looks for as long as somebody watches; never rejects. */
  async function look(id: string, poll: Poll): Promise<void> {
    try {
      do {
        const progress = await withTimeout(notifications.get(id));
        if (!isDeepStrictEqual(progress, poll.latest)) poll.latest = progress;
        wake(poll);
        if (isFinal(progress)) break;
        await pause(intervalMs);
      } while (poll.watchers > 0);
    } catch (error) {
      poll.failure = { error };
    }
    // Whoever comes from now on begins anew.
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
        else await change(poll, signal);
      }
    } finally {
      poll.watchers -= 1;
    }
  };
}

/** Nothing more will happen to it, unless an operator replays what was given up. */
function isFinal({ completedAt }: NotificationProgress): boolean {
  return completedAt !== null;
}

function wake({ waiting }: Poll): void {
  for (const resolve of [...waiting]) resolve();
}

/** The next time that there may be something new, or the watcher is to leave. */
function change({ waiting }: Poll, signal: AbortSignal): Promise<void> {
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
