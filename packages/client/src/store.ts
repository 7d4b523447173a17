/** Where a session is kept between starts of an app, and between its processes or tabs. */
import { GatepostError } from "./errors.ts";

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
  /** Refresh tokens of sessions that have ended here, and of which auth does not know yet. */
  readonly toRevoke?: readonly string[] | undefined;
}

/** A text as it was read, and what it says. */
export interface Read {
  readonly text: string | undefined;
  readonly stored: Stored;
}

/**
 * @param instead what is taken for a text that this package has not written
 * @throws GatepostError for such a text without `instead`: it may be a session, as a later version has it
 */
export async function readStored(store: SessionStore, instead?: Stored): Promise<Read> {
  const text = await store.read();
  const stored = text === undefined ? {} : (storedIn(text) ?? instead);
  if (stored) return { text, stored };
  throw new GatepostError(
    "The store holds a text that this version cannot read. To sign in again replaces it.",
  );
}

/**
 * @returns what was stored before
 * @throws GatepostError as `readStored`, and for a store that does not take it
 */
export async function change(
  store: SessionStore,
  write: (stored: Stored) => Stored,
  instead?: Stored,
): Promise<Stored> {
  for (let attempt = 0; attempt < 100; attempt++) {
    const { text, stored } = await readStored(store, instead);
    const next = write(stored);
    if (next === stored || (await store.replace(text, textOf(next)))) return stored;
  }
  throw new GatepostError("The store's `replace` has not taken, 100 times, what its `read` has given");
}

/** Undefined for a text that this package has not written. */
export function storedIn(text: string): Stored | undefined {
  try {
    const parsed: unknown = JSON.parse(text);
    return isStored(parsed) ? parsed : undefined;
  } catch {
    return undefined;
  }
}

function isStored(value: unknown): value is Stored {
  if (typeof value !== "object" || value === null) return false;
  const { session, toRevoke }: { session?: unknown; toRevoke?: unknown } = value;
  const isNothing = session === undefined && toRevoke === undefined;
  return !isNothing && (session === undefined || isSession(session)) && isList(toRevoke ?? []);
}

function isList(value: unknown): boolean {
  return Array.isArray(value) && value.every((one) => typeof one === "string");
}

function isSession(value: unknown): value is StoredSession {
  if (typeof value !== "object" || value === null) return false;
  const session: Partial<Record<keyof StoredSession, unknown>> = value;
  const texts = [session.accessToken, session.refreshToken, session.userId];
  return texts.every((one) => typeof one === "string") && typeof session.expiresIn === "number";
}

/** Undefined where nothing is left to be stored. */
function textOf({ session, toRevoke = [] }: Stored): string | undefined {
  if (!session && toRevoke.length === 0) return undefined;
  return JSON.stringify({ ...(session && { session }), ...(toRevoke.length > 0 && { toRevoke }) });
}
