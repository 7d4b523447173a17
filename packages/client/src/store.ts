/** Where a session is kept between starts of an app, and between its processes or tabs. */

/**
 * A place for one text. Both methods reject where it cannot be read or written: that is never taken for an empty one.
 * The text holds tokens: choose a place that other apps cannot read.
 */
export interface SessionStore {
  /** Undefined: there is none. */
  read(): Promise<string | undefined>;
  /**
   * Writes `next`, or removes the text where it is undefined, if the text is `expected` now. Atomic, also among
   * processes. @returns whether it was
   */
  replace(expected: string | undefined, next: string | undefined): Promise<boolean>;
}

/** Kept as long as the process, or the page. */
export function memoryStore(): SessionStore {
  let text: string | undefined;
  return {
    read: async () => text,
    async replace(expected, next) {
      if (text !== expected) return false;
      text = next;
      return true;
    },
  };
}

/** A session as it is stored. */
export interface StoredSession {
  readonly accessToken: string;
  readonly refreshToken: string;
  /** Seconds for which the access token was good when it came. */
  readonly expiresIn: number;
  /** The user: the access token's `sub`. */
  readonly userId: string;
  /** Names the key that it is bound to: `x` of its JWK. */
  readonly key?: string | undefined;
}

/** What a store holds. */
export interface Stored {
  readonly session?: StoredSession | undefined;
  /** Refresh tokens of sessions that the user has ended while auth could not be told. */
  readonly toRevoke?: readonly string[];
}

/** A text as it was read, and what it says. */
export interface Read {
  readonly text: string | undefined;
  readonly stored: Stored;
}

/** A text that this package has not written is no session. */
export async function readStored(store: SessionStore): Promise<Read> {
  const text = await store.read();
  if (text === undefined) return { text, stored: {} };
  try {
    const parsed: unknown = JSON.parse(text);
    return { text, stored: isStored(parsed) ? parsed : {} };
  } catch {
    return { text, stored: {} };
  }
}

function isStored(value: unknown): value is Stored {
  if (typeof value !== "object" || value === null) return false;
  const { session, toRevoke }: { session?: unknown; toRevoke?: unknown } = value;
  return (session === undefined || isSession(session)) && (toRevoke === undefined || Array.isArray(toRevoke));
}

function isSession(value: unknown): value is StoredSession {
  if (typeof value !== "object" || value === null) return false;
  const session: Partial<Record<keyof StoredSession, unknown>> = value;
  const texts = [session.accessToken, session.refreshToken, session.userId];
  return texts.every((one) => typeof one === "string") && typeof session.expiresIn === "number";
}

/** Undefined where nothing is left to be stored. */
export function textOf({ session, toRevoke = [] }: Stored): string | undefined {
  if (!session && toRevoke.length === 0) return undefined;
  return JSON.stringify({ ...(session && { session }), ...(toRevoke.length > 0 && { toRevoke }) });
}
