/**
 * PostgreSQL as a primary and a synchronous standby, which change places: the primary is killed, or cut off from the
 * standby, which is promoted; and the old primary comes back as it was, or has lived on.
 */
import { setTimeout } from "node:timers/promises";
import postgres from "postgres";
import { openDatabaseWire } from "../support/database-wire.ts";
import { type Cluster, startCluster } from "../support/postgresql/cluster.ts";

/** Several servers, one of which is the primary. */
export interface Replicated {
  /** `DB_HOST`. */
  readonly hosts: string;
  /** A superuser's URL of the present primary. */
  readonly url: string;
  /**
   * Kills the primary, or cuts it off. Resolves as soon as another server accepts writes.
   * @param meanwhile called once commits at the primary are confirmed by nobody
   */
  failOver(meanwhile?: () => void): Promise<void>;
  /** Brings the old primary back. @param database where to look @returns what should not be, in words */
  settle(database: string): Promise<readonly string[]>;
  stop(): Promise<void>;
}

/**
 * Milliseconds in which a cluster manager might notice that the primary is gone. One that is cut off is tried again
 * meanwhile, by clients whose commits were refused as nobody had confirmed them.
 */
const noticedMs = { killed: 2_000, "cut off": 10_000 } as const;
/** Milliseconds between two looks whether a server accepts writes. */
const lookMs = 10;
/** Milliseconds in which the servers have left the old primary, and more. */
const leaveMs = 10_000;
/** How often the servers lose their connections while there are two primaries. */
const losses = 3;

/**
 * @param programs the directory of PostgreSQL's programs
 * @param end how the primary ends: it is killed, or lives on within everybody's reach but the standby's
 */
export async function startPair(
  programs: string,
  settings: readonly string[],
  end: keyof typeof noticedMs = "killed",
): Promise<Replicated> {
  await using cleanup = new AsyncDisposableStack();
  let primary = await startCluster(programs, settings);
  cleanup.defer(() => primary.stop());
  const replication = await openDatabaseWire("127.0.0.1", portOf(primary));
  cleanup.defer(() => replication.close());
  const source = new URL(primary.url);
  source.port = String(replication.port);
  let standby = await startCluster(programs, settings, source.href);
  cleanup.defer(() => standby.stop());
  const hosts = [primary, standby].map(({ url }) => new URL(url).host).join(",");
  await waitsForStandby(primary.url);
  /** The old primary, which comes back. */
  let old: { readonly cluster: Cluster; readonly isBack: Promise<void> } | undefined;
  let joinReplication: Awaited<ReturnType<typeof replication.cut>> = async () => undefined;
  const started = cleanup.move();

  return {
    hosts,
    get url() {
      return primary.url;
    },

    async failOver(meanwhile) {
      const before = primary;
      if (end === "killed") await before.halt("kill");
      joinReplication = await replication.cut();
      meanwhile?.();
      await setTimeout(noticedMs[end]);
      await asAdmin(standby.url, async (sql) => {
        await sql`select pg_promote(false)`;
        while ((await sql`select pg_is_in_recovery() as is`)[0]?.["is"]) await setTimeout(lookMs);
      });
      primary = standby;
      standby = before;
      const isBack = end === "killed" ? before.resume() : Promise.resolve();
      isBack.catch(() => undefined);
      old = { cluster: before, isBack };
    },

    async settle(database) {
      if (!old) return [];
      await old.isBack;
      await asAdmin(old.cluster.url, async (sql) => {
        // Their commits that still wait would count as confirmed once the setting is empty.
        for (let left = leaveMs; left > 0 && (await usersOf(sql)) > 0; left -= lookMs)
          await setTimeout(lookMs);
        await sql`alter system set synchronous_standby_names = ''`;
        await sql`select pg_reload_conf()`;
      });
      const objections = await objectionsToWritesAt(old.cluster.url, primary.url, database);
      // A standby anew, at the same address: it would have to be rewound, and has what nobody acknowledged.
      const port = portOf(old.cluster);
      await old.cluster.stop();
      await joinReplication({ host: "127.0.0.1", port: portOf(primary) });
      standby = await startCluster(programs, settings, source.href, { port });
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

/** Connections of the servers, without those that have been left behind in a commit that nobody confirms. */
async function usersOf(sql: postgres.Sql): Promise<number> {
  const [row] = await sql<{ n: number }[]>`
    select count(*)::int as n from pg_stat_activity
    where application_name = 'gatepost' and wait_event is distinct from 'SyncRep'`;
  return row?.n ?? 0;
}

const portOf = ({ url }: Cluster) => Number(new URL(url).port);

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
    // Commits that nobody had confirmed become visible while this looks on; their transactions have begun before.
    const [proof] = await sql.begin(async (now) => {
      await now`create table public.proof_that_it_takes_writes ()`;
      return now<{ xid: string }[]>`select pg_current_xact_id()::text as xid`;
    });
    if (!proof) throw new Error("the old primary has no transaction");
    for (let left = losses; left > 0; left -= 1) {
      await asAdmin(
        primary,
        (now) =>
          now`select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'gatepost'`,
      );
      await setTimeout(1_000);
    }
    const [written] = await sql<{ rows: number }[]>`
      select count(*)::int as rows from auth.authorizations
      where xmin::text::bigint > ${proof.xid}::text::bigint`;
    return written?.rows === 0 ? [] : [`the old primary was written to: ${written?.rows} rows`];
  });
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
