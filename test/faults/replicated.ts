/**
 * PostgreSQL as a primary and a synchronous standby, which change places: the primary is killed, the standby promoted,
 * and the old primary comes back as it was.
 */
import { setTimeout } from "node:timers/promises";
import postgres from "postgres";
import { type Cluster, startCluster } from "../support/postgresql/cluster.ts";

/** Several servers, one of which is the primary. */
export interface Replicated {
  /** `DB_HOST`. */
  readonly hosts: string;
  /** A superuser's URL of the present primary. */
  readonly url: string;
  /** Kills the primary. Resolves as soon as another server accepts writes. */
  failOver(): Promise<void>;
  /** Brings the old primary back. @param database where to look @returns what should not be, in words */
  settle(database: string): Promise<readonly string[]>;
  stop(): Promise<void>;
}

/** Milliseconds in which a cluster manager might notice that the primary is gone. */
const noticedMs = 2_000;
/** Milliseconds between two looks whether a server accepts writes. */
const lookMs = 10;
/** How often the servers lose their connections while there are two primaries. */
const losses = 3;

/** @param programs the directory of PostgreSQL's programs */
export async function startPair(programs: string, settings: readonly string[]): Promise<Replicated> {
  await using cleanup = new AsyncDisposableStack();
  let primary = await startCluster(programs, settings);
  cleanup.defer(() => primary.stop());
  let standby = await startCluster(programs, settings, primary.url);
  cleanup.defer(() => standby.stop());
  const hosts = [primary, standby].map(({ url }) => new URL(url).host).join(",");
  await waitsForStandby(primary.url);
  /** The old primary, which comes back. */
  let old: { readonly cluster: Cluster; readonly isBack: Promise<void> } | undefined;
  const started = cleanup.move();

  return {
    hosts,
    get url() {
      return primary.url;
    },

    async failOver() {
      const killed = primary;
      await killed.halt("kill");
      await setTimeout(noticedMs);
      await asAdmin(standby.url, async (sql) => {
        await sql`select pg_promote(false)`;
        while ((await sql`select pg_is_in_recovery() as is`)[0]?.["is"]) await setTimeout(lookMs);
      });
      primary = standby;
      standby = killed;
      const isBack = killed.resume();
      isBack.catch(() => undefined);
      old = { cluster: killed, isBack };
    },

    async settle(database) {
      if (!old) return [];
      await old.isBack;
      await asAdmin(old.cluster.url, async (sql) => {
        await sql`alter system set synchronous_standby_names = ''`;
        await sql`select pg_reload_conf()`;
      });
      const objections = await objectionsToWritesAt(old.cluster.url, primary.url, database);
      // A standby anew, at the same address: it would have to be rewound, and has what nobody acknowledged.
      const port = Number(new URL(old.cluster.url).port);
      await old.cluster.stop();
      standby = await startCluster(programs, settings, primary.url, { port });
      old = undefined;
      await waitsForStandby(primary.url);
      return objections;
    },

    async stop() {
      await old?.isBack.catch(() => undefined);
      await started.disposeAsync();
    },
  };
}

/**
 * The old primary takes writes, for which nobody has to wait, and the servers lose their connections to the new one
 * again and again.
 */
export async function objectionsToWritesAt(
  old: string,
  primary: string,
  database: string,
): Promise<string[]> {
  const url = new URL(old);
  url.pathname = `/${database}`;
  return asAdmin(url.href, async (sql) => {
    await sql`create table public.proof_that_it_takes_writes ()`;
    const before = await contentsOf(sql);
    for (let left = losses; left > 0; left -= 1) {
      await asAdmin(
        primary,
        (now) =>
          now`select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'gatepost'`,
      );
      await setTimeout(1_000);
    }
    const after = await contentsOf(sql);
    return before === after ? [] : [`the old primary was written to: ${before} became ${after}`];
  });
}

/** Changes with every row that is written. */
async function contentsOf(sql: postgres.Sql): Promise<string> {
  const [row] = await sql`
    select concat_ws(' ', count(*), max(xmin::text::bigint)) as contents from auth.authorizations`;
  return String(row?.["contents"]);
}

/** Commits wait for the standby from now on, which has all there is. */
async function waitsForStandby(url: string): Promise<void> {
  await asAdmin(url, async (sql) => {
    await sql`alter system set synchronous_standby_names = '*'`;
    await sql`select pg_reload_conf()`;
    while ((await sql`select from pg_stat_replication where sync_state = 'sync'`).length === 0)
      await setTimeout(lookMs * 10);
  });
}

export async function asAdmin<T>(url: string, work: (sql: postgres.Sql) => Promise<T>): Promise<T> {
  const sql = postgres(url, { max: 1, onnotice: () => undefined });
  try {
    return await work(sql);
  } finally {
    await sql.end({ timeout: 1 });
  }
}
