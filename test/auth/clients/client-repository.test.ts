/** How often the database is asked about a client, which a caller could measure: as often for one that nobody has listed. */
import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { createClientRepository } from "../../../src/auth/clients/client-repository.ts";
import { authMigrations } from "../../../src/auth/service.ts";
import type { OpenDatabase } from "../../../src/platform/database/database.ts";
import { backends } from "../../support/servers.ts";
import { createMigratedServiceDatabase } from "../../support/service-database.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

describe.each(backends)("looking clients up on %s", (backend) => {
  let database: OpenDatabase;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    const own = await createMigratedServiceDatabase(backend, authMigrations);
    cleanup.defer(() => own.drop());
    database = await own.open();
  });

  async function add(clientId: string): Promise<void> {
    await database.db.execute(sql`
      insert into auth.clients (client_id, client_name, secret_hashes, authentication_methods, grant_types, scopes,
        client_settings, token_settings, registered_at)
      values (${clientId}, 'Client', '{}', '{}', '{}', '{}', '{"audiences": [], "mayIntrospect": false}',
        '{"accessTokenSeconds": 900, "refreshTokenSeconds": 3600, "refreshGraceSeconds": 30}', now())`);
  }

  /** Statements that looking the ids up takes, one after the other. */
  async function statements(
    repository: ReturnType<typeof createClientRepository>,
    ids: readonly string[],
  ): Promise<number> {
    const select = vi.spyOn(database.reads, "select");
    onTestFinished(() => select.mockRestore());
    const before = select.mock.calls.length;
    for (const id of ids) await repository.findEnabled(id);
    return select.mock.calls.length - before;
  }
  const often = (id: string) => Array.from({ length: 20 }, () => id);
  /** Stops the clock that the age of an entry is measured by. */
  function stopClock(): void {
    vi.useFakeTimers({ toFake: ["performance"] });
    onTestFinished(() => void vi.useRealTimers());
  }

  test("takes as few statements for an unknown id as for a known one: one in a second", async () => {
    await add("known");
    stopClock();
    const repository = createClientRepository(database.reads);
    for (const id of ["known", "unknown"]) {
      expect(await statements(repository, often(id))).toBe(1);
      vi.advanceTimersByTime(1_000);
      expect(await statements(repository, often(id))).toBe(1);
    }
  });

  test("finds a client that was unknown a second ago", async () => {
    stopClock();
    const repository = createClientRepository(database.reads);
    const id = randomUUID();
    expect(await repository.findEnabled(id)).toBeUndefined();
    await add(id);
    vi.advanceTimersByTime(1_000);
    expect(await repository.findEnabled(id)).toMatchObject({ clientId: id });
  });

  test("remembers neither ids that are too long for a client nor more than ten thousand, and known clients stay", async () => {
    await add("busy");
    stopClock();
    const repository = createClientRepository(database.reads);
    expect(await statements(repository, ["busy", ...often("x".repeat(129))])).toBe(21);
    const ids = Array.from({ length: 10_001 }, (_, n) => `unknown-${n}`);
    await Promise.all(ids.map((id) => repository.findEnabled(id)));
    expect(await statements(repository, ["busy", "unknown-10000"])).toBe(0);
    expect(await statements(repository, ["unknown-0"])).toBe(1);
  });
});
