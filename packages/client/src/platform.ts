/** What is used of the platform. All of it may be passed in: React Native, for one, has no `crypto.subtle`. */
import { UnavailableError } from "./errors.ts";

export interface Platform {
  readonly fetch: typeof fetch;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** Milliseconds since any moment; grows as time passes, whatever the clock is set to. */
  readonly monotonic: () => number;
  /** Resolves after so many milliseconds. */
  readonly sleep: (ms: number) => Promise<void>;
  /** So many bytes that nobody can guess. */
  readonly random: (bytes: number) => Uint8Array;
  readonly sha256: (data: Uint8Array<ArrayBuffer>) => Promise<Uint8Array>;
}

export function platformOf(own: Partial<Platform> = {}): Platform {
  return {
    fetch: (...request) => fetch(...request),
    now: () => Date.now(),
    monotonic: () => performance.now(),
    sleep: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
    random: (bytes) => crypto.getRandomValues(new Uint8Array(bytes)),
    sha256: async (data) => new Uint8Array(await crypto.subtle.digest("SHA-256", data)),
    ...own,
  };
}

/** Repeats what has failed with an UnavailableError, after the time that it names or longer each time, for so long. */
export async function repeated<T>(
  platform: Platform,
  seconds: number,
  act: () => Promise<T>,
  signal?: AbortSignal,
): Promise<T> {
  const from = platform.monotonic();
  for (let attempt = 0; ; attempt++) {
    try {
      return await act();
    } catch (error) {
      if (!(error instanceof UnavailableError)) throw error;
      // Many clients that have lost the same server do not come back at the same moment.
      const backoff = Math.min(0.25 * 2 ** attempt, 5) * (0.5 + Math.random() / 2);
      const wait = Math.max(error.retryAfterSeconds ?? 0, backoff);
      if ((platform.monotonic() - from) / 1000 + wait > seconds) throw error;
      await unlessAborted(signal, () => platform.sleep(wait * 1000));
    }
  }
}

/** Waits no longer than until `signal` aborts; what goes on meanwhile, goes on. @throws what it aborts with */
export async function unlessAborted<T>(
  signal: AbortSignal | null | undefined,
  act: () => Promise<T>,
): Promise<T> {
  if (!signal) return act();
  // React Native's signals have no reason.
  const reason = () => signal.reason ?? new Error("It was aborted");
  if (signal.aborted) throw reason();
  let abort = () => {};
  const aborted = new Promise<never>((_resolve, reject) => {
    abort = () => reject(reason());
    signal.addEventListener("abort", abort);
  });
  return Promise.race([act(), aborted]).finally(() => signal.removeEventListener("abort", abort));
}

export function base64url(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");
}
