/** A pair of tokens as it comes from auth. */
import type { components } from "@gatepost/contracts/auth";
import type { Signer } from "./dpop.ts";
import { UnavailableError } from "./errors.ts";
import type { StoredSession } from "./store.ts";

export interface Pair {
  readonly session: StoredSession;
  /** The refresh token in whose place it came. */
  readonly replaces: string | undefined;
}

/**
 * @param replaced the session that was refreshed: its user stays
 * @throws UnavailableError if it is no pair of tokens
 */
export function pairOf(response: unknown, signer: Signer | undefined, replaced?: StoredSession): Pair {
  const pair: Partial<components["schemas"]["TokenPair"]> = Object(response);
  const { access_token: accessToken, refresh_token: refreshToken, expires_in: expiresIn } = pair;
  const userId = replaced?.userId ?? subjectOf(accessToken);
  if (!accessToken || !refreshToken || typeof expiresIn !== "number" || userId === undefined)
    throw new UnavailableError("The response of auth is no pair of tokens.");
  const bound = signer && { key: signer.publicJwk.x };
  return {
    session: { accessToken, refreshToken, expiresIn, userId, ...bound },
    replaces: replaced?.refreshToken,
  };
}

/** Not verified: it says whose session this is here, and grants nothing. Undefined for what is no JWT of a user. */
function subjectOf(accessToken = ""): string | undefined {
  const [, payload = ""] = accessToken.split(".");
  try {
    const bytes = atob(payload.replaceAll("-", "+").replaceAll("_", "/"));
    // UTF-8, without TextDecoder, which React Native lacks.
    const escaped = bytes.replaceAll(
      /[\s\S]/g,
      (one) => `%${one.charCodeAt(0).toString(16).padStart(2, "0")}`,
    );
    const { sub }: { sub?: unknown } = JSON.parse(decodeURIComponent(escaped));
    return typeof sub === "string" ? sub : undefined;
  } catch {
    return undefined;
  }
}
