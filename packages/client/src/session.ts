/**
 * A signed-in user: keeps the pair of tokens, renews it, and never loses it by accident. Auth gives the same refresh
 * token to whoever repeats a refresh within the grace window, so neither tabs nor processes need a lock: each reads the
 * store before it refreshes, and writes only over what it has read.
 */
import type { Signer } from "./dpop.ts";
import { OAuthError, SignedOutError, type SignedOutReason, UnavailableError } from "./errors.ts";
import { type Read, readStored, type SessionStore, type StoredSession, textOf } from "./store.ts";
import { type ClientCredentials, createPost, type Platform, type Post } from "./token-endpoint.ts";

export interface SessionOptions {
  readonly authUrl: string;
  readonly client: ClientCredentials;
  readonly store: SessionStore;
  /** The key that the session is bound to. A public client needs one. */
  readonly signer?: Signer | undefined;
  /** As the client's `refreshGraceSeconds`: for so long a refresh is repeated. 30 unless given. */
  readonly graceSeconds?: number;
  /** Called when the session has ended other than by `signOut`. */
  readonly onSignedOut?: ((reason: SignedOutReason) => void) | undefined;
  readonly platform?: Partial<Platform>;
}

export interface Session {
  /** Undefined if nobody is signed in. */
  userId(): Promise<string | undefined>;
  /** Takes over a pair that another grant has given, such as {@link redeem}. */
  begin(pair: unknown): Promise<void>;
  /**
   * A token that was good when it came, and whose time has not passed.
   * @param refused a token that an API has refused with `invalid_token`: another one is returned
   * @throws SignedOutError, UnavailableError, OAuthError
   */
  accessToken(refused?: string): Promise<string>;
  /**
   * Ends the session here at once, and at auth as soon as it can be told, by the next start at the latest.
   * @param before is handed the access token while it is good, such as to delete the device at push
   */
  signOut(before?: (accessToken: string) => Promise<void>): Promise<void>;
}

/** Seconds before its end at which an access token is renewed: a request with it takes its time. */
const marginSeconds = 30;

const standard: Platform = {
  fetch: (...request) => fetch(...request),
  now: () => Date.now(),
  monotonic: () => performance.now(),
  sleep: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
};

export function createSession(options: SessionOptions): Session {
  const { store, graceSeconds = 30, onSignedOut } = options;
  const platform = { ...standard, ...options.platform };
  const post = createPost({ ...options, signer: options.signer, platform });
  /** The refresh in flight, which all callers share. */
  let refreshing: Promise<StoredSession> | undefined;
  /** An access token that came to this instance, and when: of others nobody knows how old they are. */
  let received: { readonly accessToken: string; readonly at: number } | undefined;
  /** The user of this instance; another one's session in the store is not used. */
  let userId: string | undefined;

  function isOld({ accessToken, expiresIn }: StoredSession): boolean {
    if (received?.accessToken !== accessToken) return false;
    const age = (platform.monotonic() - received.at) / 1000;
    return age > Math.max(expiresIn - marginSeconds, expiresIn / 2);
  }

  async function current(): Promise<StoredSession> {
    const { session } = (await readStored(store)).stored;
    if (!session) throw signedOut(userId === undefined ? "none" : "ended");
    if (userId !== undefined && session.userId !== userId) throw signedOut("other_identity");
    userId = session.userId;
    return session;
  }

  function signedOut(reason: SignedOutReason): SignedOutError {
    if (userId !== undefined) onSignedOut?.(reason);
    userId = undefined;
    received = undefined;
    return new SignedOutError(reason);
  }

  /** @param refused tokens that must not be the result: expired, or refused by an API */
  async function refresh(refused: string): Promise<StoredSession> {
    const from = platform.monotonic();
    for (let attempt = 0; ; attempt++) {
      // Another process may have rotated it since: a repeat with what it has replaced twice would be a reuse.
      const session = await current();
      if (session.accessToken !== refused) return session;
      try {
        const pair = await post("/oauth2/v1/tokens", {
          grant_type: "refresh_token",
          refresh_token: session.refreshToken,
        });
        return await take(session, pair);
      } catch (error) {
        if (error instanceof OAuthError && error.code === "invalid_grant") await forget(session);
        else await waitAfter(error, attempt, from);
      }
    }
  }

  /** Waits until a refresh whose outcome is unknown may be repeated. @throws the error, where it may not */
  async function waitAfter(error: unknown, attempt: number, from: number): Promise<void> {
    if (!(error instanceof UnavailableError)) throw error;
    const wait = (error.retryAfterSeconds ?? Math.min(0.25 * 2 ** attempt, 5)) * 1000;
    // Presented later, a token that was replaced is taken for a stolen one.
    if (platform.monotonic() + wait - from > graceSeconds * 1000) throw error;
    await platform.sleep(wait);
  }

  /** Removes a session that auth has ended, unless another process has a newer one. @throws SignedOutError */
  async function forget(session: StoredSession): Promise<void> {
    const isSame = (one: StoredSession | undefined) => one?.refreshToken === session.refreshToken;
    const found = await change((stored) =>
      isSame(stored.session) ? { ...stored, session: undefined } : stored,
    );
    if (!found.session || isSame(found.session)) throw signedOut("ended");
  }

  /** Stores a new pair before anybody uses it. Where another process has stored something, that is used instead. */
  async function take(replaced: StoredSession, pair: unknown): Promise<StoredSession> {
    const session = sessionOf(pair);
    const isReplaced = (one: StoredSession | undefined) => one?.refreshToken === replaced.refreshToken;
    const found = await change((stored) => (isReplaced(stored.session) ? { ...stored, session } : stored));
    if (isReplaced(found.session)) {
      received = { accessToken: session.accessToken, at: platform.monotonic() };
      userId = session.userId;
      return session;
    }
    if (found.session) return current();
    // The user has signed out while it was on its way.
    await revoke(session.refreshToken);
    throw signedOut("signed_out");
  }

  /** Tells auth; where it cannot be told, keeps the token for the next start. */
  async function revoke(token: string): Promise<void> {
    const isTold = await tell(post, token);
    await change(({ toRevoke = [], ...stored }) => {
      const others = toRevoke.filter((one) => one !== token);
      return { ...stored, toRevoke: isTold ? others : [...others, token] };
    });
  }

  async function change(write: (stored: Read["stored"]) => Read["stored"]): Promise<Read["stored"]> {
    for (;;) {
      const { text, stored } = await readStored(store);
      const next = textOf(write(stored));
      if (next === text || (await store.replace(text, next))) return stored;
    }
  }

  /** What an earlier start could not tell. */
  const starting = readStored(store).then(
    async ({ stored: { toRevoke = [] } }) => {
      for (const token of toRevoke) await revoke(token);
    },
    () => undefined,
  );

  return {
    async userId() {
      return (await readStored(store)).stored.session?.userId;
    },

    async begin(pair) {
      const session = sessionOf(pair);
      const before = await change((stored) => ({ ...stored, session }));
      received = { accessToken: session.accessToken, at: platform.monotonic() };
      userId = session.userId;
      const replaced = before.session?.refreshToken;
      if (replaced !== undefined && replaced !== session.refreshToken) await revoke(replaced);
    },

    async accessToken(refused) {
      const session = await current();
      if (session.accessToken !== refused && !isOld(session)) return session.accessToken;
      refreshing ??= refresh(session.accessToken).finally(() => {
        refreshing = undefined;
      });
      return (await refreshing).accessToken;
    },

    async signOut(before) {
      await starting;
      const { session } = (await readStored(store)).stored;
      if (!session) return;
      await before?.(session.accessToken).catch(() => undefined);
      // First here: without a network, too, the user is signed out when this resolves.
      const ended = await change(({ toRevoke = [], session: last }) => ({
        toRevoke: last ? [...toRevoke, last.refreshToken] : toRevoke,
      }));
      userId = undefined;
      received = undefined;
      if (ended.session) await revoke(ended.session.refreshToken);
    },
  };
}

/** @returns false where auth could not be told */
async function tell(post: Post, token: string): Promise<boolean> {
  try {
    await post("/oauth2/v1/revoke", { token });
    return true;
  } catch (error) {
    // What auth refuses, it refuses tomorrow, too.
    return error instanceof OAuthError;
  }
}

/** @throws UnavailableError if it is no pair of tokens */
function sessionOf(pair: unknown): StoredSession {
  const { access_token: accessToken, refresh_token: refreshToken, expires_in: expiresIn } = Object(pair);
  const texts = [accessToken, refreshToken];
  if (!texts.every((one) => typeof one === "string") || typeof expiresIn !== "number")
    throw new UnavailableError("The response of auth is no pair of tokens.", undefined, undefined);
  return { accessToken, refreshToken, expiresIn, userId: subjectOf(accessToken) };
}

/** Not verified: it says whose session this is here, and grants nothing. */
function subjectOf(accessToken: string): string {
  const [, payload = ""] = accessToken.split(".");
  const bytes = Uint8Array.from(atob(payload.replaceAll("-", "+").replaceAll("_", "/")), (one) =>
    one.charCodeAt(0),
  );
  const { sub } = JSON.parse(new TextDecoder().decode(bytes));
  return String(sub);
}
