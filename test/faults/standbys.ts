/** Two standbys that the servers read from, and what may happen to one of them: see strictness.ts. */
import postgres from "postgres";
import { type DatabaseWire, openDatabaseWire } from "../support/database-wire.ts";
import { startStandby } from "../support/postgresql/standby.ts";
import { stopProcesses } from "./stop-processes.ts";

/** A standby, at an address that stays its own. */
export interface Standby {
  /** The name by which `synchronous_standby_names` names it. */
  readonly name: string;
  /** `host:port`. */
  readonly address: string;
  /** A superuser's connection to it. */
  readonly admin: postgres.Sql;
  /** Its way to the primary. The servers' way to it is another. */
  readonly wire: DatabaseWire;
  /** Puts a new standby in its place. */
  rebuild(): Promise<void>;
  stop(): Promise<void>;
}

/** @param primary a superuser's URL */
export async function openStandby(
  programs: string,
  settings: readonly string[],
  primary: URL,
  name: string,
): Promise<Standby> {
  await using cleanup = new AsyncDisposableStack();
  const source = new URL(primary);
  const wire = await openDatabaseWire(source.hostname, Number(source.port));
  cleanup.defer(() => wire.close());
  source.port = String(wire.port);
  let cluster = await startStandby(programs, settings, source.href, name);
  cleanup.defer(() => cluster.stop());
  const { host, port } = new URL(cluster.url);
  const admin = postgres(cluster.url, { max: 1, onnotice: () => undefined });
  cleanup.defer(() => admin.end({ timeout: 1 }));
  const started = cleanup.move();
  return {
    name,
    address: host,
    admin,
    wire,
    async rebuild() {
      await cluster.stop();
      cluster = await startStandby(programs, settings, source.href, name, { port: Number(port) });
    },
    stop: () => started.disposeAsync(),
  };
}

/** What becomes of a standby. */
export interface StandbyState {
  readonly name: string;
  /**
   * When the standby is taken out of `synchronous_standby_names`: while commits wait for one that does not confirm them,
   * nothing is acknowledged.
   */
  readonly takenOut: "never" | "before" | "afterwards";
  /** @returns ends it */
  begin(standby: Standby): Promise<() => Promise<void>>;
}

async function pauseReplay({ admin }: Standby): Promise<() => Promise<void>> {
  await admin`select pg_wal_replay_pause()`;
  return async () => {
    await admin`select pg_wal_replay_resume()`;
  };
}

/** What the servers meet, whatever the reason. Those that are not healthy are as old as their beginning. */
export const standbyStates: readonly StandbyState[] = [
  { name: "healthy", takenOut: "never", begin: async () => async () => undefined },
  {
    // It hears nothing of the primary, and goes on responding to the servers.
    name: "cut off",
    takenOut: "afterwards",
    async begin({ wire }) {
      const letThrough = wire.hang();
      return async () => letThrough();
    },
  },
  { name: "replay paused", takenOut: "afterwards", begin: pauseReplay },
  {
    // Once it goes on, it responds to what it was asked before, with the state of then.
    name: "stopped (SIGSTOP)",
    takenOut: "afterwards",
    async begin({ admin }) {
      const goOn = await stopProcesses(admin);
      return async () => goOn();
    },
  },
  {
    name: "promoted",
    takenOut: "afterwards",
    async begin({ admin, rebuild }) {
      await admin`select pg_promote()`;
      return rebuild;
    },
  },
  // Endings are acknowledged while the servers' leases still run.
  { name: "taken out, then stale", takenOut: "before", begin: pauseReplay },
];
