/**
 * A signed-in user: keeps the pair of tokens, renews it, and never loses it by accident. Auth gives the same refresh
 * token to whoever repeats a refresh within the grace window, so neither tabs nor processes need a lock: each reads the
 * store before it refreshes, and writes only over what it has read.
 */
import { OAuthError, SignedOutError, type SignedOutReason, UnavailableError } from "./errors.ts";
import { type Platform, platformOf, repeated } from "./platform.ts";
import { type Read, readStored, type SessionStore, type StoredSession, textOf } from "./store.ts";
import { type AuthAddress, createPost } from "./token-endpoint.ts";
import { type Pair, pairOf } from "./token-pair.ts";

export interface SessionOptions extends AuthAddress {
  readonly store: SessionStore;
  /** As the client's `refreshGraceSeconds`: for so long a refresh is repeated. 30 unless given. */
  readonly graceSeconds?: number;
  /** Called when the session has ended other than by `signOut` here. */
  readonly onSignedOut?: ((reason: SignedOutReason) => void) | undefined;
  readonly platform?: Partial<Platform>;
}

export interface Session {
  /** Undefined if nobody is signed in. */
  userId(): Promise<string | undefined>;
  /** Takes over the response of another grant, in place of what there is. */
  begin(response: unknown): Promise<void>;
  /**
   * A token that was good when it came, and whose time has not passed as far as is known here.
   * @param refused a token that an API has refused with `invalid_token`: another one is returned
   * @throws SignedOutError, UnavailableError, OAuthError; and what the store throws, which ends no session
   */
  accessToken(refused?: string): Promise<string>;
  /**
   * Ends the session here, and at auth as soon as it can be told, by the next start at the latest.
   * @param before is handed the access token while it is good, such as to delete the device at push. It may fail, and
   *   is waited for at most five seconds
   */
  signOut(before?: (accessToken: string) => Promise<unknown>): Promise<void>;
}

/** Seconds before its end at which an access token is renewed: a request with it takes its time. */
const marginSeconds = 30;

export function createSession(options: SessionOptions): Session {
  const { store, signer, graceSeconds = 30, onSignedOut } = options;
  const platform = platformOf(options.platform);
  const post = createPost(options, platform);
  /** The refresh in flight, which all callers share. */
  let refreshing: Promise<StoredSession> | undefined;
  /** The access token of now, and when it was seen first: it is at least so old, whatever the clock says. */
  let seen: { readonly accessToken: string; readonly at: number } | undefined;
  /** The user of this instance; another one's session in the store is not used. */
  let userId: string | undefined;
  /** A pair that could not be stored when it came. */
  let unsaved: Pair | undefined;
  /** Why auth is not asked before a moment that it has named. */
  let resting: { readonly error: UnavailableError; readonly until: number } | undefined;

  function see({ accessToken, userId: user }: StoredSession): void {
    if (seen?.accessToken !== accessToken) seen = { accessToken, at: platform.monotonic() };
    userId = user;
  }

  function isOld({ accessToken, expiresIn }: StoredSession): boolean {
    if (seen?.accessToken !== accessToken) return false;
    const age = (platform.monotonic() - seen.at) / 1000;
    return age > Math.max(expiresIn - marginSeconds, expiresIn / 2);
  }

  async function current(): Promise<StoredSession> {
    const { session } = (await readStored(store)).stored;
    if (!session) throw signedOut(userId === undefined ? "none" : "ended");
    if (userId !== undefined && session.userId !== userId) throw signedOut("other_identity");
    if (session.key !== signer?.publicJwk.x) return forget(session, "key_lost");
    see(session);
    return session;
  }

  function signedOut(reason: SignedOutReason): SignedOutError {
    if (userId !== undefined || reason === "key_lost") onSignedOut?.(reason);
    // Of another user this instance is never: it has to be begun anew.
    if (reason !== "other_identity") userId = undefined;
    return new SignedOutError(reason);
  }

  /** @param refused a token that must not be the result: it has expired, or an API has refused it */
  async function refresh(refused: string): Promise<StoredSession> {
    // Another process may have rotated it since: a repeat with what it has replaced twice would be a reuse.
    const session = await current();
    if (session.accessToken !== refused) return session;
    if (unsaved?.replaces === session.refreshToken) return take(unsaved);
    if (resting && platform.monotonic() < resting.until) throw resting.error;
    try {
      const form = { grant_type: "refresh_token", refresh_token: session.refreshToken };
      return await take(pairOf(await post("generateTokens", form), signer, session.refreshToken));
    } catch (error) {
      if (error instanceof OAuthError && error.code === "invalid_grant") return forget(session, "ended");
      if (error instanceof UnavailableError && error.retryAfterSeconds !== undefined)
        resting = { error, until: platform.monotonic() + error.retryAfterSeconds * 1000 };
      throw error;
    }
  }

  /** Removes a session that has ended. Where another process has stored a newer one, that is used. */
  async function forget(session: StoredSession, reason: SignedOutReason): Promise<StoredSession> {
    const isSame = (one: StoredSession | undefined) => one?.refreshToken === session.refreshToken;
    const found = await change((stored) =>
      isSame(stored.session) ? { ...stored, session: undefined } : stored,
    );
    if (!found.session || isSame(found.session)) throw signedOut(reason);
    return current();
  }

  /** Stores a pair before anybody uses it. Where another process has stored something, that is used instead. */
  async function take(pair: Pair): Promise<StoredSession> {
    const { session, replaces } = pair;
    const isReplaced = (one: StoredSession | undefined) => one?.refreshToken === replaces;
    unsaved = pair;
    const found = await change((stored) => (isReplaced(stored.session) ? { ...stored, session } : stored));
    unsaved = undefined;
    if (!found.session) {
      // The user has signed out while it was on its way.
      await revoke(session.refreshToken);
      throw signedOut("signed_out");
    }
    return current();
  }

  /** Tells auth; where it cannot be told, keeps the token for the next start. */
  async function revoke(token: string): Promise<void> {
    const isTold = await post("revokeToken", { token }).then(
      () => true,
      // What auth refuses, it refuses tomorrow, too.
      (error: unknown) => error instanceof OAuthError,
    );
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
  async function revokeLeft(): Promise<void> {
    const { toRevoke = [] } = (await readStored(store)).stored;
    for (const token of toRevoke) await revoke(token);
  }
  const starting = revokeLeft().catch(() => undefined);

  return {
    async userId() {
      return (await readStored(store)).stored.session?.userId;
    },

    async begin(response) {
      const { session } = pairOf(response, signer);
      const before = await change((stored) => ({ ...stored, session }));
      see(session);
      const replaced = before.session?.refreshToken;
      if (replaced !== undefined && replaced !== session.refreshToken) await revoke(replaced);
    },

    async accessToken(refused) {
      const session = await current();
      if (session.accessToken !== refused && !isOld(session)) return session.accessToken;
      // Presented after the window, a token that was replaced is taken for a stolen one.
      refreshing ??= repeated(platform, graceSeconds - 1, () => refresh(session.accessToken)).finally(() => {
        refreshing = undefined;
      });
      return (await refreshing).accessToken;
    },

    async signOut(before) {
      await starting;
      const { session } = (await readStored(store)).stored;
      if (!session || (userId !== undefined && session.userId !== userId)) return;
      const isOurs = (one: StoredSession | undefined) => one?.userId === session.userId;
      const told = before?.(session.accessToken).catch(() => undefined);
      await Promise.race([told, platform.sleep(told ? 5_000 : 0)]);
      // Before auth is asked: without a network, too, the user is signed out when this resolves.
      const { session: last } = await change((stored) =>
        stored.session && isOurs(stored.session)
          ? { toRevoke: [...(stored.toRevoke ?? []), stored.session.refreshToken] }
          : stored,
      );
      userId = undefined;
      if (last && isOurs(last)) await revoke(last.refreshToken);
    },
  };
}
