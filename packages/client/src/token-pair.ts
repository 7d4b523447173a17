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

/** @throws UnavailableError if it is no pair of tokens */
export function pairOf(response: unknown, signer: Signer | undefined, replaces?: string): Pair {
  const pair: Partial<components["schemas"]["TokenPair"]> = Object(response);
  const { access_token: accessToken, refresh_token: refreshToken, expires_in: expiresIn } = pair;
  if (!accessToken || !refreshToken || typeof expiresIn !== "number")
    throw new UnavailableError("The response of auth is no pair of tokens.");
  const bound = signer && { key: signer.publicJwk.x };
  return {
    session: { accessToken, refreshToken, expiresIn, userId: subjectOf(accessToken), ...bound },
    replaces,
  };
}

/** Not verified: it says whose session this is here, and grants nothing. */
function subjectOf(accessToken: string): string {
  const [, payload = ""] = accessToken.split(".");
  const bytes = atob(payload.replaceAll("-", "+").replaceAll("_", "/"));
  // UTF-8, without TextDecoder, which React Native lacks.
  const escaped = bytes.replaceAll(/[\s\S]/g, (one) => `%${one.charCodeAt(0).toString(16).padStart(2, "0")}`);
  const { sub } = JSON.parse(decodeURIComponent(escaped));
  return String(sub);
}
