/** The programs of others that the cluster runs, and how to get those that a machine lacks. */
import { findHaproxy } from "../support/haproxy.ts";
import { findNats } from "../support/nats.ts";
import { findPostgresql } from "../support/postgresql/binaries.ts";
import { findRedis } from "../support/redis.ts";

/** The folder of what a primary and a standby need; undefined where this machine lacks some of it. */
export const findPostgresqlForStandbys = () => findPostgresql(["initdb", "postgres", "pg_basebackup"]);

/** A program, and where Debian has it. */
interface Needed {
  readonly name: string;
  readonly debian: string;
  /** Undefined where this machine lacks it. */
  readonly find: () => string | undefined;
}

const programs: readonly Needed[] = [
  { name: "PostgreSQL", debian: "postgresql", find: findPostgresqlForStandbys },
  { name: "NATS", debian: "nats-server", find: findNats },
  { name: "Redis", debian: "redis-server", find: findRedis },
  { name: "HAProxy", debian: "haproxy", find: findHaproxy },
];

/** One line that says what is missing on this machine, and how to install it; undefined if nothing is. */
export function missingPrograms(needed = programs): string | undefined {
  const missing = needed.filter(({ find }) => find() === undefined);
  if (missing.length === 0) return undefined;
  const names = missing.map(({ name }) => name).join(", ");
  const packages = missing.map(({ debian }) => debian).join(" ");
  return `Not on this machine: ${names}. On Debian or Ubuntu: apt-get install ${packages}`;
}
