/**
 * Registered OAuth2 clients: who may ask for tokens, with which grants and scopes. This folder owns their
 * table, their synchronisation from the settings, and the check of their credentials. It issues nothing.
 */
import type { clients } from "../schema.ts";

/** A client as it is stored. */
export type Client = typeof clients.$inferSelect;

/** Who calls an operation that the contract protects. */
export type Caller =
  | { readonly kind: "internal" }
  | { readonly kind: "platform" }
  | { readonly kind: "client"; readonly client: Client };

/** Whether this caller may introspect tokens of this issuer. */
export function mayIntrospect(caller: Caller): boolean {
  return caller.kind !== "client" || caller.client.clientSettings.mayIntrospect;
}
