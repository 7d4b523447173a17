/** What the log says of an outage of the database. */
import { expect, test } from "vitest";
import { findPostgresql } from "./support/postgresql/binaries.ts";
import { startCluster } from "./support/postgresql/cluster.ts";
import { startOwnServer } from "./support/servers.ts";
import { suiteCleanup } from "./support/suite-cleanup.ts";
import { waitFor } from "./support/wait-for.ts";

const binaries = findPostgresql(["initdb", "postgres"]);
const cleanup = suiteCleanup();

test.runIf(binaries !== undefined)(
  "an outage has one line when it begins, with what to check, and one when it is over, for all loops and services",
  async () => {
    const cluster = await startCluster(binaries ?? "", ["fsync=off", "max_connections=40"]);
    cleanup.defer(() => cluster.stop());
    const { hostname, port } = new URL(cluster.url);
    const database = { DB_HOST: hostname, DB_PORT: port, DB_NAME: "postgres", DB_USER: "postgres" };
    const server = await startOwnServer("PGlite", {
      env: { ...database, DB_PASSWORD: "any", LOGGING_LEVEL: "debug" },
    });
    cleanup.defer(() => server.stop());
    const lines = (): { level: string; msg: string; database?: string; durationMs?: number }[] =>
      server
        .logs()
        .trimEnd()
        .split("\n")
        .map((line) => JSON.parse(line));
    const before = lines().length;
    const since = () => lines().slice(before);

    const stopped = performance.now();
    await cluster.halt("fast");
    // Each loop goes on meeting it, and says so at level debug.
    const untaken = () => since().filter(({ msg }) => msg.startsWith("No chunk could be taken"));
    await waitFor(() => expect(untaken().length).toBeGreaterThan(3));
    await cluster.resume();
    await waitFor(() => expect(since().at(-1)?.msg).toBe("The database is used again"));
    const outageMs = performance.now() - stopped;

    expect(new Set(untaken().map(({ level }) => level))).toEqual(new Set(["debug"]));
    const said = since().filter(({ level }) => level !== "debug");
    expect(said.map(({ level, database }) => [level, database])).toEqual([
      ["warn", `PostgreSQL at ${hostname}:${port}/postgres`],
      ["warn", `PostgreSQL at ${hostname}:${port}/postgres`],
    ]);
    expect(said[0]?.msg).toMatch(
      /^The database cannot be used: .+\. Check that PostgreSQL runs there, DB_HOST and DB_PORT\.$/,
    );
    expect(said[1]?.durationMs).toBeGreaterThan(500);
    expect(said[1]?.durationMs).toBeLessThan(outageMs);
  },
);
