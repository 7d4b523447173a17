/** Clients that act for no user (RFC 6749 section 4.4): for themselves, or for an organization. */
import type { Client } from "./client-repository.ts";

/** Whom a client acts for. */
export interface AsClient {
  /** An id of the operator's; null: the client acts for itself. */
  readonly organizationId: string | null;
}

/** Whether the client may act so, as it is listed now. */
export function mayActAs({ grantTypes, clientSettings }: Client, { organizationId }: AsClient): boolean {
  if (!grantTypes.includes("client_credentials")) return false;
  return organizationId === null || clientSettings.organizations?.includes(organizationId) === true;
}
