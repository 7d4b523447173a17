/**
 * Registered OAuth2 clients: the applications that may request tokens, with their grants and scopes. This
 * folder owns their table, their synchronisation with the settings, and the check of their credentials. It
 * issues no tokens.
 */
import { ServiceError } from "../../platform/base/errors.ts";
import { AuthErrorKinds } from "../errors.ts";
import type { clients } from "../schema.ts";

/** A client as it is stored. */
export type Client = typeof clients.$inferSelect;

/** How a client sends its id and secret (RFC 7591 section 2): in the Authorization header, or in the body. */
export type AuthenticationMethod = "client_secret_basic" | "client_secret_post";

/** The authenticated caller of a protected operation. */
export type Caller =
  | { readonly kind: "internal" }
  | { readonly kind: "platform" }
  | { readonly kind: "client"; readonly client: Client };

/** Refuses a caller that may not introspect tokens of this issuer. */
export function requireIntrospection(caller: Caller): void {
  if (caller.kind !== "client" || caller.client.clientSettings.mayIntrospect) return;
  throw new ServiceError(
    AuthErrorKinds.mayNotIntrospect,
    "This client may not introspect. Its clientSettings in OAUTH_SERVER_CLIENTS need mayIntrospect: true.",
  );
}
