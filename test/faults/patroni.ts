/**
 * PostgreSQL under Patroni: etcd and three members, from the programs of this machine. The leader is killed with its
 * Patroni; later its PostgreSQL comes back alone, as it was, and then its Patroni, which makes it a standby.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { chownSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { serverUser } from "../support/postgresql/binaries.ts";
import { asAdmin, objectionsToWritesAt, type Replicated } from "./replicated.ts";

const programs = { patroni: "/usr/bin/patroni", etcd: "/usr/bin/etcd" };
/** Seconds: Patroni's own least, and what fits into it. */
const times = { ttl: 20, loop_wait: 5, retry_timeout: 5 };
const memberNames = ["a", "b", "c"] as const;
/** Milliseconds between two looks at the members. */
const lookMs = 20;
/** Milliseconds that anything of Patroni may take. */
const patienceMs = 120_000;

interface Member {
  readonly name: string;
  readonly url: string;
  readonly data: string;
  readonly port: number;
  start(): void;
  patroni: ChildProcess | undefined;
}

/** Why it cannot be started here; undefined if it can. */
export function whyNoPatroni(): string | undefined {
  const missing = Object.values(programs).filter((program) => !existsSync(program));
  return missing.length > 0
    ? `${missing.join(" and ")} not found (Debian: apt-get install patroni etcd-server)`
    : undefined;
}

export async function startPatroni(binaries: string, settings: readonly string[]): Promise<Replicated> {
  await using cleanup = new AsyncDisposableStack();
  const owner = serverUser();
  const directory = mkdtempSync(join(tmpdir(), "gatepost-patroni-"));
  if (owner) chownSync(directory, owner.uid, owner.gid);
  cleanup.defer(() => rmSync(directory, { recursive: true, force: true }));
  function run(program: string, args: readonly string[]): ChildProcess {
    const log = join(directory, "log");
    const child = spawn("/bin/sh", ["-c", `exec "$0" "$@" >>${log} 2>&1`, program, ...args], {
      ...owner,
      cwd: directory,
      env: { ...process.env, LC_ALL: "C.UTF-8", HOME: directory },
      stdio: "ignore",
    });
    return child;
  }

  const [clientPort, peerPort, ...ports] = await freePorts(2 + 2 * memberNames.length);
  const [client, peer] = [`http://127.0.0.1:${clientPort}`, `http://127.0.0.1:${peerPort}`];
  const etcd = run(programs.etcd, [
    ...["--name", "etcd", "--data-dir", join(directory, "etcd"), "--unsafe-no-fsync"],
    ...["--listen-client-urls", client, "--advertise-client-urls", client],
    ...[
      "--listen-peer-urls",
      peer,
      "--initial-advertise-peer-urls",
      peer,
      "--initial-cluster",
      `etcd=${peer}`,
    ],
  ]);
  cleanup.defer(() => ended(etcd, "SIGKILL"));

  const members = memberNames.map((name, index): Member => {
    const [port = 0, restPort = 0] = ports.slice(2 * index);
    const data = join(directory, name);
    const file = join(directory, `${name}.json`);
    const at = `127.0.0.1:${port}`;
    const trusted = ["host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"];
    const configuration = {
      scope: "gatepost",
      name,
      restapi: { listen: `127.0.0.1:${restPort}`, connect_address: `127.0.0.1:${restPort}` },
      etcd3: { host: `127.0.0.1:${clientPort}` },
      bootstrap: {
        dcs: {
          ...times,
          synchronous_mode: true,
          synchronous_mode_strict: true,
          postgresql: {
            use_pg_rewind: true,
            parameters: Object.fromEntries(settings.map((setting) => setting.split("="))),
          },
        },
        initdb: [{ encoding: "UTF8" }, "no-sync"],
      },
      postgresql: {
        ...{ listen: at, connect_address: at, data_dir: data, bin_dir: binaries },
        pg_hba: trusted,
        authentication: {
          superuser: { username: "postgres", password: "patroni" },
          replication: { username: "replicator", password: "patroni" },
        },
        parameters: { unix_socket_directories: directory, lc_messages: "C" },
      },
    };
    // YAML can be written as JSON.
    writeFileSync(file, JSON.stringify(configuration));
    return {
      name,
      url: `postgres://postgres@${at}/postgres`,
      ...{ data, port, patroni: undefined },
      start() {
        this.patroni = run(programs.patroni, [file]);
      },
    };
  });
  for (const member of members) {
    mkdirSync(member.data, { mode: 0o700 });
    if (owner) chownSync(member.data, owner.uid, owner.gid);
    rmSync(member.data, { recursive: true });
    cleanup.defer(async () => {
      if (member.patroni) await ended(member.patroni, "SIGKILL");
      killPostgresql(member.data);
    });
  }
  for (const member of members) member.start();
  const log = () => readFileSync(join(directory, "log"), "utf8").split("\n").slice(-40).join("\n");
  let primary = await leaderOf(members, log);
  let old: Member | undefined;
  const started = cleanup.move();

  return {
    hosts: members.map(({ port }) => `127.0.0.1:${port}`).join(","),
    get url() {
      return primary.url;
    },

    async failOver() {
      old = primary;
      if (old.patroni) await ended(old.patroni, "SIGKILL");
      killPostgresql(old.data);
      primary = await leaderOf(
        members.filter((member) => member !== old),
        log,
      );
    },

    async settle(database) {
      if (!old) return [];
      const [back, port] = [old, String(old.port)];
      const alone = run(join(binaries, "postgres"), [
        ...["-D", back.data, "-c", `port=${port}`, "-c", "synchronous_standby_names="],
      ]);
      const accepts = () => asAdmin(back.url, async (sql) => (await sql`select 1`).length > 0);
      await until(accepts, log);
      const objections = await objectionsToWritesAt(back.url, primary.url, database);
      await ended(alone, "SIGINT");
      back.start();
      old = undefined;
      await until(() => isStandby(back.url), log);
      return objections;
    },

    stop: () => started.disposeAsync(),
  };
}

/** The one that accepts writes: a primary, and another member confirms its commits. */
async function leaderOf(members: readonly Member[], log: () => string): Promise<Member> {
  const acceptsWrites = (url: string) =>
    asAdmin(url, async (sql) => {
      const [row] = await sql`
        select not pg_is_in_recovery()
          and exists (select from pg_stat_replication where sync_state in ('sync', 'quorum')) as is`;
      return row?.["is"] === true;
    }).catch(() => false);
  let found: Member | undefined;
  await until(async () => {
    const are = await Promise.all(members.map(({ url }) => acceptsWrites(url)));
    found = members.find((_, index) => are[index]);
    return found !== undefined;
  }, log);
  if (!found) throw new Error("Patroni has no leader");
  return found;
}

const isStandby = (url: string) =>
  asAdmin(url, async (sql) => {
    const [row] = await sql`
      select pg_is_in_recovery() and exists (select from pg_stat_wal_receiver where status = 'streaming') as is`;
    return row?.["is"] === true;
  });

/** @throws with the end of the log if it takes too long */
async function until(check: () => Promise<boolean>, log: () => string): Promise<void> {
  const deadline = performance.now() + patienceMs;
  while (!(await check().catch(() => false))) {
    if (performance.now() > deadline) throw new Error(`Patroni takes too long:\n${log()}`);
    await setTimeout(lookMs);
  }
}

async function ended(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, "exit");
  child.kill(signal);
  await gone;
}

/**
 * kill -9 of all its processes at once. The file outlives a server that was killed, and by then its number may be that
 * of another program: so only a process that was started with this directory is meant.
 */
function killPostgresql(data: string): void {
  const file = join(data, "postmaster.pid");
  if (!existsSync(file)) return;
  const postmaster = readFileSync(file, "utf8").split("\n")[0] ?? "";
  const command = `/proc/${postmaster}/cmdline`;
  if (!existsSync(command) || !readFileSync(command, "utf8").split("\0").includes(data)) return;
  const kill = (signal: string, ...pids: readonly string[]) =>
    execFileSync("sh", ["-c", `kill -${signal} ${pids.join(" ")} 2>/dev/null || true`]);
  kill("STOP", postmaster);
  const children = execFileSync("sh", ["-c", `pgrep -P ${postmaster} || true`], { encoding: "utf8" });
  kill("KILL", postmaster, ...children.split("\n").filter((pid) => pid !== ""));
}

/** @returns ports that are all free at the same moment */
async function freePorts(count: number): Promise<number[]> {
  const servers = await Promise.all(
    Array.from({ length: count }, async () => {
      const server = createServer().listen(0, "127.0.0.1");
      await once(server, "listening");
      return server;
    }),
  );
  return Promise.all(
    servers.map(async (server) => {
      const address = server.address();
      server.close();
      await once(server, "close");
      return typeof address === "object" && address ? address.port : 0;
    }),
  );
}
