/** Hot standbys that servers read from (`DB_READ_HOSTS`): how they are set up, waited for, and seen to be read. */
import { setTimeout } from "node:timers/promises";
import type postgres from "postgres";
import { type Cluster, type ClusterPlace, startCluster } from "./cluster.ts";

/**
 * Starts a standby, with all that the primary has.
 * @param settings those of the primary
 * @param primary a superuser's URL of it
 * @param name as {@link commitsWaitFor} takes it
 */
export function startStandby(
  programs: string,
  settings: readonly string[],
  primary: string,
  name: string,
  place: ClusterPlace = {},
): Promise<Cluster> {
  const own = [`cluster_name=${name}`, "restart_after_crash=off", "wal_retrieve_retry_interval=100ms"];
  return startCluster(programs, [...settings, ...own], primary, place);
}

/** Commits wait for these standbys from now on, and for no other. @param admin of the primary */
export async function commitsWaitFor(admin: postgres.Sql, names: readonly string[]): Promise<void> {
  const setting = names.length === 0 ? "" : `FIRST ${names.length} (${names.join(", ")})`;
  await admin.unsafe(`alter system set synchronous_standby_names = '${setting}'`);
  await admin`select pg_reload_conf()`;
  const wanted = [...names].sort().join();
  await until(`commits wait for ${setting || "no standby"}`, async () => {
    const rows = await admin<{ name: string }[]>`
      select application_name as name from pg_stat_replication where sync_state = 'sync' order by name`;
    return rows.map(({ name }) => name).join() === wanted;
  });
}

/** Resolves when the standby shows all that has been committed until now. */
export async function hasCaughtUp(primary: postgres.Sql, standby: postgres.Sql): Promise<void> {
  const [written] = await primary<{ lsn: string }[]>`select pg_current_wal_lsn()::text as lsn`;
  const lsn = written?.lsn ?? "";
  await until(`a standby has ${lsn}`, async () => {
    const [row] = await standby<{ is: boolean }[]>`
      select coalesce(pg_last_wal_replay_lsn() >= ${lsn}::pg_lsn, false) as is`;
    return row?.is === true;
  });
}

/** Whether a server reads from the standby, by the last that its log says of it. @param address `host:port` */
export function isReadBy({ logs }: { logs(): string }, address: string): boolean {
  const last = logs()
    .split("\n")
    .findLast((line) => line.includes(`"standby":"${address}"`));
  return last?.includes("Introspection reads from") === true;
}

/** Milliseconds between two looks, and after which what should come never will. */
const lookMs = 20;
const patienceMs = 120_000;

/**
 * Waits for a condition. What a server that is away throws means that it is not there yet.
 * @param what for the error, if it never comes true
 */
export async function until(what: string, isTrue: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = performance.now() + patienceMs;
  let last: unknown;
  while (performance.now() < deadline) {
    try {
      if (await isTrue()) return;
    } catch (error) {
      last = error;
    }
    await setTimeout(lookMs);
  }
  throw new Error(`It never came true that ${what}.`, { cause: last });
}
