/** Asks auth about each token (RFC 7662). */
import { accessTokenOf, type Check } from "./access-token.ts";
import { createEndpoint, type Members, UnavailableError } from "./auth-server.ts";

/** A client of this API's own at auth, whose `clientSettings` have `mayIntrospect: true`. */
export interface IntrospectionOptions {
  readonly clientId: string;
  readonly clientSecret: string;
  /** The address of the operation, where it differs from what the issuer's metadata say. */
  readonly url?: string;
}

interface Dependencies {
  readonly issuer: string;
  readonly audience: string;
  readonly introspection: IntrospectionOptions;
  readonly fetch: typeof fetch;
}

/**
 * Each check is a call of its own, sent after the request came: one that joined an earlier call could be let in by what
 * was true before a revocation.
 */
export function createStrictCheck({ issuer, audience, introspection, fetch: call }: Dependencies): Check {
  const { clientId, clientSecret, url: given } = introspection;
  const ask = createEndpoint(call, { issuer, member: "introspection_endpoint", given });
  // RFC 6749 section 2.3.1: both are encoded as a form's values are.
  const credentials = [clientId, clientSecret].map((v) => new URLSearchParams({ v }).toString().slice(2));
  const headers = { authorization: `Basic ${btoa(credentials.join(":"))}`, accept: "application/json" };

  function isMeantForUs({ iss = issuer, aud }: Members): boolean {
    return iss === issuer && [aud].flat().includes(audience);
  }

  return async (token) => {
    const body = new URLSearchParams({ token, token_type_hint: "access_token" });
    const claims = await ask({ method: "POST", headers, body });
    if (claims["active"] === false) return undefined;
    if (claims["active"] !== true)
      throw new UnavailableError("The introspection does not say whether the token is active", {});
    return isMeantForUs(claims) ? accessTokenOf(claims) : undefined;
  };
}
