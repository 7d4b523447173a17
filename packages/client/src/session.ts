/**
 * A signed-in user: keeps the pair of tokens, renews it, and never loses it by accident. Auth gives the same refresh
 * token to whoever repeats a refresh within the grace window, so neither tabs nor processes need a lock: each reads the
 * store before it refreshes, and writes only over what it has read.
 */
import { OAuthError, SignedOutError, type SignedOutReason, UnavailableError } from "./errors.ts";
import { type Platform, platformOf, repeated } from "./platform.ts";
import { added, createRevoke } from "./revoke.ts";
import { change, readStored, type SessionStore, type StoredSession } from "./store.ts";
import { type AuthAddress, createPost, provenAgain } from "./token-endpoint.ts";
import { type Pair, pairOf } from "./token-pair.ts";

export interface SessionOptions extends AuthAddress {
  readonly store: SessionStore;
  /** As the client's `refreshGraceSeconds`: within it a refresh is repeated. 30 unless given. */
  readonly graceSeconds?: number;
  /** Called when a user whom this instance has had, or named by `userId`, is signed out other than by `signOut` here. */
  readonly onSignedOut?: ((reason: SignedOutReason) => void) | undefined;
  readonly platform?: Partial<Platform>;
}

export interface Session {
  /** Undefined if nobody is signed in. As the store has it: whether auth has ended the session, the next call finds out. */
  userId(): Promise<string | undefined>;
  /**
   * Takes over the response of another grant, in place of what there is, also of a text that this version cannot read.
   * Where the store does not take it, that is thrown, and its tokens are revoked.
   */
  begin(response: unknown): Promise<void>;
  /**
   * A token that was good when it came, and whose time has not passed as far as is known here.
   * @param refused a token that an API has refused with `invalid_token`: another one is returned
   * @throws SignedOutError, UnavailableError, OAuthError; and what the store throws, which ends no session
   */
  accessToken(refused?: string): Promise<string>;
  /**
   * Ends the session here at once, and then at auth, or at a later start if it cannot be told now.
   * @param before is handed an access token that is still good, such as to delete the device at push. It may fail, and
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
  const revoke = createRevoke(post, store);
  // Of what an earlier start has left.
  revoke();
  // Presented after the window, a token that was replaced is taken for a stolen one.
  const lastRepeat = Math.max(graceSeconds - 1, graceSeconds / 2);
  /** The refresh in flight, which all callers share. */
  let refreshing: Promise<StoredSession> | undefined;
  /** The access token of now, and when it was seen first: it is at least so old, or exactly, whatever the clock says. */
  let seen: { readonly accessToken: string; readonly at: number; readonly isExact: boolean } | undefined;
  /** The user of this instance; another one's session in the store is not used. */
  let userId: string | undefined;
  /** A pair that could not be stored when it came. */
  let unsaved: Pair | undefined;
  /** The last write of `begin` or `signOut`: what is read meanwhile may be of before it. */
  let writing: Promise<unknown> = Promise.resolve();
  /** Why nobody is signed in, as it was told last. */
  let told: SignedOutReason | undefined;
  /** Why auth is not asked before a moment that it has named. */
  let resting: { readonly error: UnavailableError; readonly until: number } | undefined;

  const hasKey = ({ key }: StoredSession) => key === signer?.publicJwk.x;

  function see({ accessToken }: StoredSession, isExact: boolean): void {
    if (seen?.accessToken !== accessToken) seen = { accessToken, at: platform.monotonic(), isExact };
  }

  function isOld({ accessToken, expiresIn }: StoredSession): boolean {
    if (seen?.accessToken !== accessToken) return false;
    const age = (platform.monotonic() - seen.at) / 1000;
    return age > Math.max(expiresIn - marginSeconds, expiresIn / 2);
  }

  /** What is stored, and not what was before the last write of this instance. */
  async function found(): Promise<StoredSession | undefined> {
    const last = writing;
    await last.catch(() => undefined);
    const { session } = (await readStored(store)).stored;
    return last === writing ? session : found();
  }

  async function current(): Promise<StoredSession> {
    const session = await found();
    if (!session) throw signedOut(userId === undefined ? "none" : "ended");
    if (userId !== undefined && session.userId !== userId) throw signedOut("other_identity");
    // It stays: another page may have its key still.
    if (!hasKey(session)) throw signedOut("key_lost");
    see(session, false);
    ({ userId } = session);
    told = undefined;
    return session;
  }

  function signedOut(reason: SignedOutReason): SignedOutError {
    if (reason !== told && userId !== undefined) onSignedOut?.(reason);
    told = reason;
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
      return await take(await renewed(session));
    } catch (error) {
      if (error instanceof OAuthError && error.code === "invalid_grant") return forget(session);
      if (error instanceof UnavailableError && error.retryAfterSeconds !== undefined)
        resting = { error, until: platform.monotonic() + error.retryAfterSeconds * 1000 };
      throw error;
    }
  }

  async function renewed(session: StoredSession): Promise<Pair> {
    const form = { grant_type: "refresh_token", refresh_token: session.refreshToken };
    return pairOf(await post("generateTokens", form), signer, session);
  }

  /** Removes a session that has ended. Where another process has stored a newer one, that is used. */
  async function forget(session: StoredSession): Promise<StoredSession> {
    const isSame = (one: StoredSession | undefined) => one?.refreshToken === session.refreshToken;
    const found = await change(store, (stored) =>
      isSame(stored.session) ? { ...stored, session: undefined } : stored,
    );
    if (!found.session || isSame(found.session)) throw signedOut("ended");
    return current();
  }

  /** Stores a pair before anybody uses it. Where another process has stored something, that is used instead. */
  async function take(pair: Pair): Promise<StoredSession> {
    const { session, replaces } = pair;
    unsaved = pair;
    const { session: found } = await change(store, (stored) => {
      if (!stored.session) return { toRevoke: added(stored.toRevoke, session.refreshToken) };
      return stored.session.refreshToken === replaces ? { ...stored, session } : stored;
    });
    unsaved = undefined;
    if (!found) {
      // The user has signed out while it was on its way.
      await revoke();
      throw signedOut("signed_out");
    }
    if (found.refreshToken === replaces) see(session, true);
    return current();
  }

  /** An access token that is good, of a session that is stored no longer. */
  async function lastToken(session: StoredSession): Promise<string> {
    if (seen?.accessToken === session.accessToken && seen.isExact && !isOld(session))
      return session.accessToken;
    return (await provenAgain(() => renewed(session))).session.accessToken;
  }

  return {
    async userId() {
      const session = await found();
      if (!session || !hasKey(session)) return undefined;
      // Whoever was shown this user is to be told when he is signed out.
      userId ??= session.userId;
      return session.userId;
    },

    async begin(response) {
      const { session } = pairOf(response, signer);
      const begun = change(
        store,
        ({ session: old, toRevoke }) => {
          const isOther = old && old.refreshToken !== session.refreshToken;
          return { session, toRevoke: isOther ? added(toRevoke, old.refreshToken) : toRevoke };
        },
        {},
      ).then(() => {
        see(session, true);
        ({ userId } = session);
      });
      writing = begun;
      try {
        await begun;
      } catch (error) {
        // Its code is spent, and nobody would have these tokens.
        await post("revokeToken", { token: session.refreshToken }).catch(() => undefined);
        throw error;
      }
      await revoke();
    },

    async accessToken(refused) {
      const session = await current();
      if (session.accessToken !== refused && !isOld(session)) return session.accessToken;
      refreshing ??= repeated(platform, lastRepeat, () =>
        provenAgain(() => refresh(session.accessToken)),
      ).finally(() => {
        refreshing = undefined;
      });
      return (await refreshing).accessToken;
    },

    async signOut(before) {
      const isOurs = (one: StoredSession) => hasKey(one) && (userId === undefined || one.userId === userId);
      const ended = change(store, (stored) => {
        const { session, toRevoke } = stored;
        return session && isOurs(session) ? { toRevoke: added(toRevoke, session.refreshToken) } : stored;
      }).then(({ session }) => {
        if (!session || !isOurs(session)) return undefined;
        userId = undefined;
        return session;
      });
      writing = ended;
      const session = await ended;
      if (!session) return;
      if (before) {
        // Auth takes the refresh token of before, too, when it is revoked.
        const tell = async () => before(await lastToken(session));
        await Promise.race([tell().catch(() => undefined), platform.sleep(5_000)]);
      }
      await revoke();
    },
  };
}
