import { type ClientRegistration, grantTypes } from "../client-settings.ts";

/** Metadata of this authorization server (RFC 8414 section 2), for both discovery documents. */
export function serverMetadata(issuer: string, clients: readonly ClientRegistration[]) {
  const authenticationMethods = ["client_secret_basic"];
  return {
    issuer,
    token_endpoint: `${issuer}/oauth2/v1/tokens`,
    jwks_uri: `${issuer}/v1/jwks`,
    introspection_endpoint: `${issuer}/oauth2/v1/introspect`,
    revocation_endpoint: `${issuer}/oauth2/v1/revoke`,
    grant_types_supported: [...grantTypes],
    response_types_supported: [],
    token_endpoint_auth_methods_supported: authenticationMethods,
    introspection_endpoint_auth_methods_supported: authenticationMethods,
    revocation_endpoint_auth_methods_supported: authenticationMethods,
    scopes_supported: [...new Set(clients.flatMap(({ scopes }) => scopes))].sort(),
    service_documentation: `${issuer}/docs`,
  };
}
