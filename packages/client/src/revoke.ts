/** Refresh tokens of sessions that have ended here, until auth knows of it. */
import { OAuthError } from "./errors.ts";
import { change, readStored, type SessionStore } from "./store.ts";
import type { Post } from "./token-endpoint.ts";

/** As many as are left behind without a network, and no more, should auth never take them. */
export const added = (toRevoke: readonly string[] = [], token: string) => [...toRevoke, token].slice(-10);

/** @returns tells auth of all that the store has. What it cannot be told stays there, for a later start; never rejects */
export function createRevoke(post: Post, store: SessionStore): () => Promise<void> {
  /** @returns the token if it is to be forgotten */
  const told = (token: string) =>
    post("revokeToken", { token }).then(
      () => [token],
      // Auth knows no such token. All else may be put right, such as a wrong secret of the client.
      (error: unknown) => (error instanceof OAuthError && error.code === "invalid_token" ? [token] : []),
    );

  async function revoke(): Promise<void> {
    const { toRevoke = [] } = (await readStored(store)).stored;
    const known = (await Promise.all(toRevoke.map(told))).flat();
    if (known.length === 0) return;
    await change(store, ({ session, toRevoke: now }) => ({
      session,
      toRevoke: now?.filter((one) => !known.includes(one)),
    }));
  }
  return () => revoke().catch(() => undefined);
}
