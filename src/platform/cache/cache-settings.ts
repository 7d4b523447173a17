/** Settings of the cache: Redis or Valkey. Without them processes count in the database, or each by itself. */
import { bracketed } from "../base/addresses.ts";
import type { EnvironmentVariables } from "../settings/environment.ts";
import { fixedPort, host, password, plainText, yesNo } from "../settings/kinds.ts";
import { certificatesPem } from "../settings/pem.ts";
import { type ReadOptions, resolveSettings, type SettingsTable } from "../settings/settings.ts";
import { isPrivate } from "../settings/urls.ts";

export const cacheTable = {
  CACHE_HOST: {
    description:
      "The host of Redis or Valkey, where processes count attempts and calls together; without it attempts are counted in the database, and calls in each process.",
    kind: host,
    example: "redis.internal",
  },
  CACHE_PORT: { description: "The port of the cache.", kind: fixedPort, default: "6379" },
  CACHE_USERNAME: {
    description: "The user that the process signs in to the cache as; the server's default user unless set.",
    kind: plainText,
    example: "counters",
  },
  CACHE_PASSWORD: {
    description: "The password for the cache; none unless set.",
    kind: password,
    secret: true,
    exampleFile: "cache-password",
  },
  CACHE_TLS: {
    description: "Whether connections to the cache are encrypted, and the server's certificate is checked.",
    kind: yesNo,
    default: "NO",
  },
  CACHE_CA: {
    description: "The authorities that may have signed the cache's certificate; those of Node.js unless set.",
    kind: certificatesPem,
    exampleFile: "cache-ca.pem",
  },
} as const satisfies SettingsTable;

export type CacheSettings = NonNullable<ReturnType<typeof resolveCacheSettings>["value"]>;

/** Reads the settings of the cache; the value is undefined too where none is set. */
export function resolveCacheSettings(
  env: EnvironmentVariables,
  options: Pick<ReadOptions, "environment" | "prefix">,
) {
  const { value, valid, problems, problem } = resolveSettings(cacheTable, env, options);
  if (value?.CACHE_HOST === undefined) return { value: undefined, problems };
  const { CACHE_HOST: name, CACHE_USERNAME: username, CACHE_PASSWORD: password } = value;
  const isPublic = !isPrivate(new URL(`http://${bracketed(name)}`));
  const all = [...problems];
  if (options.environment === "production" && isPublic && valid.CACHE_TLS === false) {
    all.push(problem("CACHE_TLS", "must be YES in production, as the host of the cache is public"));
  }
  if (username !== undefined && password === undefined && "CACHE_PASSWORD" in valid) {
    all.push(problem("CACHE_PASSWORD", "is missing, but CACHE_USERNAME is set"));
  }
  return {
    value: {
      host: name,
      port: value.CACHE_PORT,
      username,
      password,
      isSecure: value.CACHE_TLS,
      ca: value.CACHE_CA,
    },
    problems: all,
  };
}
