import { isIP } from "node:net";
import type { Address, PostgresSettings } from "../settings.ts";
import type { ClientOptions } from "./connection.ts";

export type SessionParameters = Readonly<Record<string, string | number>>;

/** Gives up a connection whose other end is gone after 40 seconds, in place of two hours. */
const keepalives = {
  tcp_keepalives_idle: 10,
  tcp_keepalives_interval: 10,
  tcp_keepalives_count: 3,
  tcp_user_timeout: 40_000,
} as const satisfies SessionParameters;

/** What a session begins with, unless a pooler shares it. */
export const ownSession = {
  // Also on a standby, which serves nobody whose default is serializable.
  default_transaction_isolation: "read committed",
  // Our statements are short. If the planner overestimates their cost, JIT compilation takes longer than they do.
  jit: "off",
  ...keepalives,
} as const satisfies SessionParameters;

export interface Login {
  readonly user: string;
  readonly password: string | undefined;
  /** Another password than the one that the server has refused, if there is one by now. */
  readonly renew?: (refused: string) => string | undefined;
}

export function clientOptions(
  { name, ssl, sslCa }: Pick<PostgresSettings, "name" | "ssl" | "sslCa">,
  { host, port }: Address,
  { user, password }: Login,
  session: SessionParameters,
): ClientOptions {
  return {
    host,
    port,
    database: name,
    username: user,
    ...(password !== undefined && { password }),
    ssl:
      ssl === "disable"
        ? false
        : {
            // The driver does not know the name at the other end of a socket of ours.
            host,
            ...(isIP(host) === 0 && { servername: host }),
            rejectUnauthorized: ssl === "verify-full" || sslCa !== undefined,
            ...(sslCa && { ca: sslCa }),
            // As in libpq: with a certificate authority, "require" checks the chain, but not the name.
            ...(ssl === "require" && { checkServerIdentity: () => undefined }),
          },
    // Drizzle parses arrays. And where a connection ends meanwhile, the driver throws what cannot be caught.
    fetch_types: false,
    connection: { application_name: "gatepost", ...session },
  };
}
