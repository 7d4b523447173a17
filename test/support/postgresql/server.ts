/**
 * The PostgreSQL server that tests and benchmarks run on: the one that `TEST_POSTGRES_URL` names, or else one
 * that is started for the run, or none where this machine has no PostgreSQL.
 */
import postgres from "postgres";
import { findPostgresql } from "./binaries.ts";
import { startCluster } from "./cluster.ts";

/** Names a superuser's URL. The processes of a run inherit it. */
const variable = "TEST_POSTGRES_URL";

/** What tests may do without: data is gone with them anyway, and machines do not lose power in them. */
const testSettings = ["fsync=off", "full_page_writes=off", "max_connections=300"];

/** A superuser's way into the server; undefined where tests have none. */
export function postgresUrl(): URL | undefined {
  const url = process.env[variable];
  return url === undefined || url === "" ? undefined : new URL(url);
}

/** As {@link postgresUrl}, for what cannot run without. @throws where there is none */
export function requiredPostgresUrl(): URL {
  const url = postgresUrl();
  if (!url) throw new Error(`This needs PostgreSQL, and ${variable} names none.`);
  return url;
}

export interface ProvideOptions {
  /** Commits survive the machine, as in production: for measurements. */
  readonly durable?: boolean;
  /** The processor that a server which is started runs on; any where it is not given. */
  readonly core?: number | undefined;
}

/**
 * Sees to it that {@link postgresUrl} names a server wherever one can be had.
 *
 * @returns ends what was started
 * @throws if `TEST_POSTGRES_URL` names a server that does not answer, or the one of this machine does not start
 */
export async function providePostgresql({
  durable = false,
  core,
}: ProvideOptions = {}): Promise<() => Promise<void>> {
  const given = postgresUrl();
  if (given) {
    await answers(given);
    return async () => undefined;
  }
  const binaries = findPostgresql();
  if (binaries === undefined) return async () => undefined;
  const cluster = await startCluster(
    binaries,
    durable ? [] : testSettings,
    "",
    core === undefined ? {} : { core },
  );
  process.env[variable] = cluster.url;
  return async () => {
    delete process.env[variable];
    await cluster.stop();
  };
}

async function answers(url: URL): Promise<void> {
  const sql = postgres(url.href, { max: 1, connect_timeout: 5, onnotice: () => undefined });
  try {
    await sql`select 1`;
  } catch (cause) {
    const message = `${variable} names ${url.hostname}:${url.port || 5432}, where no PostgreSQL lets us in.`;
    throw new Error(message, { cause });
  } finally {
    await sql.end({ timeout: 1 });
  }
}
