/** A client of the identity provider's introspection endpoint (RFC 7662), which is found by discovery. */
import { fetchJson, findEndpoint, identityProviderUnavailable } from "./discovery.ts";
import type { Introspection } from "./introspection-client.ts";

/** Our client at the identity provider; it authenticates with HTTP Basic (RFC 6749 section 2.3.1). */
export interface IntrospectionCredentials {
  readonly clientId: string;
  readonly clientSecret: string;
}

/** @param keepMs milliseconds for which the endpoint is not looked for again, whatever fails */
export function createIntrospectionEndpoint(
  issuer: string,
  { clientId, clientSecret }: IntrospectionCredentials,
  keepMs = 10_000,
): Introspection {
  const encoded = [clientId, clientSecret].map((text) =>
    new URLSearchParams([["", text]]).toString().slice(1),
  );
  const authorization = `Basic ${Buffer.from(encoded.join(":")).toString("base64")}`;
  let endpoint: string | undefined;
  /** The moment at which the endpoint was last looked for, by performance.now(). */
  let foundAt = 0;

  async function find(): Promise<string> {
    endpoint = await findEndpoint(issuer, "introspection_endpoint");
    foundAt = performance.now();
    return endpoint;
  }

  return {
    async introspect(token) {
      try {
        const url = endpoint ?? (await find());
        const body = new URLSearchParams({ token, token_type_hint: "access_token" });
        const response = await fetchJson(url, { method: "POST", headers: { authorization }, body });
        const { active, sub, client_id } = response;
        if (typeof active !== "boolean") throw new Error(`${url} does not say whether a token is active`);
        // The response must have `active` only.
        return active ? { sub: textOf(sub), clientId: textOf(client_id) } : undefined;
      } catch (error) {
        // It may have moved.
        if (performance.now() - foundAt > keepMs) endpoint = undefined;
        throw identityProviderUnavailable(issuer, error);
      }
    },
    // Its caller waits for discovery in any case, for the key set.
    prepare: async () => undefined,
    close: () => undefined,
  };
}

/** A member that may be absent, but is no other type than text. */
function textOf(member: unknown): string | undefined {
  if (member === undefined || member === null) return undefined;
  if (typeof member !== "string")
    throw new Error("The introspection endpoint named a subject or client that is no text");
  return member;
}
