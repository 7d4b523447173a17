/** What happens to PostgreSQL itself: it freezes, restarts, is replaced by its standby, or has no space left. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmdirSync, rmSync, statfsSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import postgres from "postgres";
import { startCluster } from "../support/postgresql/cluster.ts";
import type { Fault } from "./fault.ts";
import { stopProcesses } from "./stop-processes.ts";
import { addressOf, postgresqlPrograms } from "./world.ts";

function freeze(seconds: number, short: boolean): Fault {
  return {
    name: `freeze-${seconds}`,
    what: `all processes of PostgreSQL stand still for ${seconds} s`,
    short,
    concerns: "everybody",
    async play({ world: { admin } }) {
      const goOn = await stopProcesses(admin);
      await setTimeout(seconds * 1_000);
      goOn();
    },
  };
}

function restart(mode: "fast" | "immediate", what: string): Fault {
  return {
    name: `restart-${mode}`,
    what,
    short: mode === "immediate",
    concerns: "everybody",
    async play({ world: { cluster } }) {
      await cluster.halt(mode);
      await setTimeout(2_000);
      await cluster.resume();
    },
  };
}

const standby: Fault = {
  name: "standby",
  what: "one process is led to a standby that has stopped to replay, while the others go on; and back",
  short: true,
  concerns: "others",
  async play({ world: { cluster, members, admin }, isShort }) {
    const [, misled] = members;
    const copy = await startCluster(postgresqlPrograms(), ["fsync=off", "max_connections=80"], cluster.url);
    const url = new URL(copy.url);
    url.pathname = `/${admin.options.database}`;
    const sql = postgres(url.href, { max: 1, onnotice: () => undefined });
    try {
      await sql`select pg_wal_replay_pause()`;
      await setTimeout(1_000);
      const lead = await misled.wire.cut();
      await lead(addressOf(copy));
      await setTimeout(isShort ? 3_000 : 15_000);
      const back = await misled.wire.cut();
      await back(addressOf(cluster));
    } finally {
      await sql.end({ timeout: 1 });
      await copy.stop();
    }
  },
};

/** A file system of a few MiB in memory; undefined where this machine lets us mount none. */
function mountSmallDisk(): string | undefined {
  const directory = mkdtempSync(join(tmpdir(), "gatepost-disk-"));
  try {
    const options = ["-t", "tmpfs", "-o", "size=192m,mode=755", "tmpfs", directory];
    execFileSync("mount", options, { stdio: "ignore" });
  } catch {
    rmdirSync(directory);
    return undefined;
  }
  process.on("exit", () => {
    execFileSync("umount", ["--lazy", directory]);
    rmdirSync(directory);
  });
  return directory;
}

let smallDisk: string | undefined;

const diskFull: Fault = {
  name: "disk-full",
  what: "the disk of PostgreSQL is full; then there is space again, and who has ended by itself is started",
  short: false,
  concerns: "everybody",
  impossible() {
    smallDisk ??= mountSmallDisk();
    return smallDisk === undefined
      ? "no file system of its own can be mounted here (it needs root)"
      : undefined;
  },
  world: () => ({ place: { parent: smallDisk ?? tmpdir(), mayEnd: true } }),
  async play({ world: { admin, cluster } }) {
    const ballast = join(smallDisk ?? "", "ballast");
    const { bavail, bsize } = statfsSync(smallDisk ?? "");
    writeFileSync(ballast, Buffer.alloc(bavail * bsize));
    await setTimeout(10_000);
    rmSync(ballast);
    const isUp = await admin`select 1`.then(
      () => true,
      () => false,
    );
    if (isUp) return;
    await cluster.halt("fast");
    await cluster.resume();
  },
};

export const databaseFaults: readonly Fault[] = [
  freeze(5, true),
  freeze(36, false),
  freeze(75, false),
  restart("fast", "PostgreSQL is restarted as an operator does it, and is away for two seconds"),
  restart("immediate", "PostgreSQL crashes, is away for two seconds, and recovers"),
  standby,
  diskFull,
];
