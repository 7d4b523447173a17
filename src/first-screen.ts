import { developmentClients } from "./auth/client-settings.ts";
import type { RunningServer, Settings } from "./server.ts";

/** What development mode says once it is ready: where everything is, with what to sign in, what to try. */
export function firstScreen({ server, auth }: Settings, { ports, database }: RunningServer): string {
  const host = server.host === "0.0.0.0" || server.host === "::" ? "127.0.0.1" : server.host;
  const http = `${server.tls ? "https" : "http"}://${host}:${ports.http}`;
  const clients = [
    {
      clientId: auth.internalClient.clientId,
      clientSecret: auth.internalClient.clientSecret,
      what: "identities, introspection, revocation",
    },
    ...auth.clients.map(({ clientId, clientSecret, grantTypes }) => ({
      clientId,
      clientSecret,
      what: grantTypes.length === 5 ? "all five grants" : grantTypes.join(", "),
    })),
  ];
  // Secrets that somebody set are theirs; only those that everybody knows are shown.
  const known = new Set<string>([
    "internal-dev-secret",
    ...developmentClients.map(({ clientSecret }) => clientSecret),
  ]);
  const credentials = clients.map(({ clientId, clientSecret, what }) => {
    const secret = known.has(clientSecret) ? clientSecret : "(as you set it)";
    return `    ${clientId.padEnd(12)} ${secret.padEnd(24)} ${what}`;
  });
  return `
  gatepost is ready (development mode, ${database})

    Auth API         ${http}/api/auth
    API reference    ${http}/api/auth/docs
    gRPC             ${host}:${ports.grpc}   (reflection and health are on)
    Health, metrics  http://${host}:${ports.management}/health/ready   /metrics
${auth.otp.builtIn ? `    OTP verifier     ${auth.otp.verifierUrl}   (shows its codes below)\n` : ""}
  Development credentials
${credentials.join("\n")}

  Try it, in another terminal:
    npm run demo
    curl -u internal:internal-dev-secret ${http}/api/auth/v1/identities \\
      -H 'content-type: application/json' -d '{"id":"u-1","phone":"+12025550123"}'
    curl -u mobile-app:mobile-app-dev-secret ${http}/api/auth/oauth2/v1/tokens -d grant_type=auth -d auth_id=u-1

`;
}
