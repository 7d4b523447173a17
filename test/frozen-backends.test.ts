/** Processes of PostgreSQL that tests stop, on the server that all tests share. */
import postgres from "postgres";
import { beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { freezeBackends } from "./support/postgresql/frozen-backends.ts";
import { requiredPostgresUrl } from "./support/postgresql/server.ts";
import { backends } from "./support/servers.ts";
import { suiteCleanup } from "./support/suite-cleanup.ts";

const connections = 4;

describe.runIf(backends.includes("PostgreSQL"))("processes that are frozen", () => {
  let admin: postgres.Sql;
  let users: readonly postgres.Sql[];
  let pids: number[];
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    const open = () => {
      const one = postgres(requiredPostgresUrl().href, { max: 1, onnotice: () => undefined });
      cleanup.defer(() => one.end({ timeout: 1 }));
      return one;
    };
    admin = open();
    users = Array.from({ length: connections }, open);
    const found = await Promise.all(
      users.map((one) => one<{ pid: number }[]>`select pg_backend_pid() as pid`),
    );
    pids = found.flat().map(({ pid }) => pid);
  });
  const states = () => admin<{ state: string }[]>`
    select distinct state from pg_stat_activity where pid = any(${pids})`;

  test("are each between two statements, however busy, and go on", async () => {
    const stopping = new AbortController();
    let statements = 0;
    const busy = users.map(async (one) => {
      while (!stopping.signal.aborted) {
        await one`select count(*) from generate_series(1, 20000)`;
        statements += 1;
      }
    });
    try {
      for (let round = 0; round < 20; round += 1) {
        const thaw = await freezeBackends(pids);
        try {
          expect(await states()).toEqual([{ state: "idle" }]);
        } finally {
          thaw();
        }
        const before = statements;
        await expect.poll(() => statements).toBeGreaterThan(before + connections);
      }
    } finally {
      stopping.abort();
      await Promise.all(busy);
    }
  });

  test("are none if one of them does not end its statement, and all go on", async () => {
    const one = users.at(0) ?? expect.fail("no connection");
    const sleeping = one`select pg_sleep(3600)`.catch(() => undefined);
    onTestFinished(async () => {
      await admin`select pg_cancel_backend(${pids[0] ?? 0})`;
      await sleeping;
    });
    await expect.poll(states).toContainEqual({ state: "active" });
    await expect(freezeBackends([...pids].reverse(), 300)).rejects.toThrow("was never idle");
    const others = users.slice(1).map((other) => other`select 1 as one`);
    for (const rows of await Promise.all(others)) expect(rows).toEqual([{ one: 1 }]);
  });
});
