/**
 * Processes that share a table of leases, and clocks that run ahead: the row of a process which no longer beats is
 * removed by another one. A process that was only held up comes back afterwards.
 */
import { sql } from "drizzle-orm";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { readLeases } from "../../../../src/auth/schema.ts";
import { authMigrations } from "../../../../src/auth/service.ts";
import type { Loop } from "../../../../src/platform/base/loop.ts";
import type { OpenDatabase } from "../../../../src/platform/database/database.ts";
import { number } from "../../../../src/platform/database/sql/readers.ts";
import { computed, rows, selection } from "../../../../src/platform/database/sql/statements.ts";
import { createStandbys, type Standbys } from "../../../../src/platform/database/standbys/standbys.ts";
import { createMigratedServiceDatabase, type ServiceDatabase } from "../../../support/service-database.ts";
import { waitFor } from "../../../support/wait-for.ts";

/** Milliseconds after which a row that does not change is certainly removed. */
const goneMs = 31_000;

let holder: ServiceDatabase;
let database: OpenDatabase;
const loops = new Set<Loop>();

beforeEach(async () => {
  vi.useFakeTimers({ toFake: ["performance", "Date"] });
  holder = await createMigratedServiceDatabase("PGlite", authMigrations);
  database = await holder.open();
  // The primary says that it is a standby, so that it is one which shows each commit at once.
  for (const statement of [
    "create schema standby",
    "create function standby.pg_is_in_recovery() returns boolean language sql return true",
    "create function standby.current_setting(text) returns text language sql return 'off'",
    "grant usage on schema standby to public",
  ])
    await database.db.execute(statement);
  await database.db.execute(sql`set search_path = standby, pg_catalog`);
});

afterEach(async () => {
  for (const loop of loops) await loop.stop();
  loops.clear();
  await holder.drop();
  vi.useRealTimers();
});

/** A process of the service; it beats once it is started. */
function newProcess() {
  const standbys = createStandbys({
    hosts: [{ address: "standby:5432", reads: database.reads }],
    leases: database.db,
    table: readLeases,
    report: () => undefined,
  });
  const beat = selection({ beat: computed(number, sql`coalesce(${standbys.evidence.beat.getSQL()}, -1)`) });
  return {
    standbys,
    start(): Loop {
      const loop = standbys.start();
      loops.add(loop);
      return loop;
    },
    /** Whether it believes the standby. */
    believes: () => believes(standbys),
    /** The beat in its row; -1 if it has none. */
    async beat(): Promise<number | undefined> {
      const [found] = await rows(database.db, beat, sql`select ${beat}`);
      return found?.beat;
    },
  };
}

async function believes({ read, evidence }: Standbys): Promise<boolean> {
  const selected = selection(evidence);
  const found = await read(async (reads) => {
    const [row] = await rows(reads, selected, sql`select ${selected}`);
    if (!row) throw new Error("the standby returned no row");
    return row;
  });
  return found !== undefined;
}

const isBelieved = ({ believes }: ReturnType<typeof newProcess>) =>
  waitFor(async () => expect(await believes()).toBe(true));

/** Two processes that read from the standby, of which the first is held up from now on. */
async function heldUp() {
  const [held, other] = [newProcess(), newProcess()];
  const [loop, otherLoop] = [held.start(), other.start()];
  await isBelieved(held);
  await isBelieved(other);
  await loop.stop();
  const last = await held.beat();
  if (last === undefined) throw new Error("the process has no row");
  // The other has seen that row.
  await other.standbys.applied();
  await other.standbys.applied();
  return { held, other, otherLoop, last };
}

test("a process that comes back after its row was removed is not believed before it has beaten anew", async () => {
  const { held, other, last } = await heldUp();
  vi.advanceTimersByTime(goneMs);
  await waitFor(async () => expect(await held.beat()).toBe(-1));
  expect(await held.believes()).toBe(false);
  await isBelieved(other);

  held.start();
  await isBelieved(held);
  expect(await held.beat()).toBeGreaterThan(last);
});

test("a standby that still shows the removed row is not believed", async () => {
  const { held, last } = await heldUp();
  await database.db.execute("create table public.shown as select * from auth.read_leases");
  vi.advanceTimersByTime(goneMs);
  await waitFor(async () => expect(await held.beat()).toBe(-1));
  await database.db.execute("insert into auth.read_leases select * from public.shown on conflict do nothing");
  expect(await held.beat()).toBe(last);
  expect(await held.believes()).toBe(false);
});

test("a row that has changed since it was last seen stays", async () => {
  const { held, other, otherLoop, last } = await heldUp();
  await otherLoop.stop();
  vi.advanceTimersByTime(goneMs);
  // It is back before the other one removes the row as it was.
  await held.standbys.applied();
  await other.standbys.applied();
  await other.standbys.applied();
  expect(await held.beat()).toBeGreaterThan(last);
});
