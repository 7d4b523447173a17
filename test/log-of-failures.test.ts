/** The log in a bad hour: one stack a minute for each cause, and lines that name what is wrong with the database. */
import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { chownSync, mkdtempSync, rmdirSync, rmSync, statfsSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import postgres from "postgres";
import { beforeAll, describe, expect, test } from "vitest";
import { authApi, internal, newPhone } from "./support/auth-api.ts";
import { findPostgresql } from "./support/postgresql/binaries.ts";
import { startCluster } from "./support/postgresql/cluster.ts";
import { type Server, startOwnServer } from "./support/servers.ts";
import { suiteCleanup } from "./support/suite-cleanup.ts";
import { waitFor } from "./support/wait-for.ts";

const binaries = findPostgresql(["initdb", "postgres"]);
const cleanup = suiteCleanup();

/** A file system of a few MiB in memory; undefined where this machine lets us mount none. */
function smallDisk(): string | undefined {
  const directory = mkdtempSync(join(tmpdir(), "gatepost-disk-"));
  try {
    execFileSync("mount", ["-t", "tmpfs", "-o", "size=4m", "tmpfs", directory], { stdio: "ignore" });
    cleanup.defer(() => void execFileSync("umount", ["--lazy", directory]));
    return directory;
  } catch {
    rmdirSync(directory);
    return undefined;
  }
}

describe.runIf(binaries)("the log of requests that fail", () => {
  let server: Server;
  let admin: postgres.Sql;
  beforeAll(async () => {
    const cluster = await startCluster(binaries ?? "", ["fsync=off", "max_connections=30"]);
    cleanup.defer(() => cluster.stop());
    admin = postgres(cluster.url, { max: 2, onnotice: () => undefined });
    cleanup.defer(() => admin.end({ timeout: 1 }));
    await admin.unsafe("create role app login; grant create on database postgres to app");
    const { hostname, port } = new URL(cluster.url);
    const database = { DB_HOST: hostname, DB_PORT: port, DB_NAME: "postgres", DB_USER: "app" };
    server = await startOwnServer("PGlite", { env: { ...database, DB_PASSWORD: "any", SERVICES: "auth" } });
    cleanup.defer(() => server.stop());
  });

  const create = async () => {
    const json = { id: randomUUID(), phone: newPhone() };
    const response = await authApi(`${server.origin}/api/auth`).call("createIdentity", {
      as: internal,
      json,
    });
    return { status: response.status, detail: Reflect.get(Object(response.body), "detail") };
  };
  const refused = { status: 503, detail: "The database does not answer. Try again in a moment." };
  interface Line {
    readonly msg: string;
    readonly requestId?: string;
    readonly repeats?: number;
  }
  /** What is logged from now on, as text and parsed. */
  function sinceNow() {
    const from = server.logs().length;
    const texts = () => server.logs().slice(from).trimEnd().split("\n").filter(Boolean);
    return { texts, lines: (): Line[] => texts().map((text) => JSON.parse(text)) };
  }

  test("a lock is named, with one stack for all that wait for it", async () => {
    const locking = await admin.reserve();
    await locking`begin`;
    await locking`lock table auth.identities in access exclusive mode`;
    const since = sinceNow();
    try {
      for (const one of await Promise.all(Array.from({ length: 40 }, create))) expect(one).toEqual(refused);
    } finally {
      await locking`rollback`;
      locking.release();
    }
    const failed = since.lines().filter(({ requestId }) => requestId !== undefined);
    expect(failed).toHaveLength(40);
    expect(new Set(failed.map(({ msg }) => msg))).toEqual(
      new Set(["A lock in the database was not released in time"]),
    );
    const [stacks, short] = [true, false].map((has) =>
      since.texts().filter((text) => has === /"stack"/.test(text)),
    );
    // One is of the statement that waited, one of those that were not begun behind it.
    expect(stacks?.length).toBeLessThanOrEqual(2);
    for (const text of short ?? []) expect(text.length).toBeLessThan(500);
    expect(failed.at(-1)?.repeats).toBeGreaterThan(0);
  });

  const disk = smallDisk();
  test.runIf(disk)("a full disk is named, with its step, and has no line for each request", async () => {
    const place = disk ?? "";
    const { uid, gid } = statSync(String((await admin`show data_directory`)[0]?.["data_directory"]));
    chownSync(place, uid, gid);
    await admin.unsafe(`create tablespace small location '${place}'`);
    await admin.unsafe("alter table auth.identities set tablespace small");
    const { bavail, bsize } = statfsSync(place);
    writeFileSync(join(place, "ballast"), Buffer.alloc(bavail * bsize));
    const since = sinceNow();
    await waitFor(async () => expect(await create()).toEqual(refused));
    for (let request = 0; request < 10; request += 1) await create();
    rmSync(join(place, "ballast"));
    expect((await create()).status).toBe(200);
    expect(since.lines().map(({ msg }) => msg)).toEqual([
      expect.stringMatching(
        /^The disk of the database is full: .*No space left on device\. Free or add room on the disk of PostgreSQL/,
      ),
    ]);
  });

  test("exhausted connections are named, with the settings to change", async () => {
    const since = sinceNow();
    await admin`alter role app connection limit 0`;
    await admin`select pg_terminate_backend(pid) from pg_stat_activity where usename = 'app'`;
    await waitFor(async () => {
      expect(await create()).toEqual(refused);
      expect(since.lines().map(({ msg }) => msg)).toContainEqual(
        expect.stringMatching(
          /^The database takes no more connections: .+\. Lower DB_POOL_SIZE, or raise max_connections\.$/,
        ),
      );
    });
    await admin`alter role app connection limit -1`;
    await waitFor(async () => expect((await create()).status).toBe(200));
  });
});
