/** The embedded database that the services of a process share. */
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sql } from "drizzle-orm";
import { expect, it } from "vitest";
import { authMigrations } from "../../../src/auth/service.ts";
import { openDatabase } from "../../../src/platform/database/open.ts";
import { pushMigrations } from "../../../src/push/database.ts";
import { copyEmbeddedDatabase } from "../../support/embedded-template.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

const directory = mkdtempSync(join(tmpdir(), "gatepost-test-"));
suiteCleanup().defer(() => rmSync(directory, { recursive: true, force: true }));

const one = sql`select 1 as one`;

async function openBoth(dataDir: string) {
  await copyEmbeddedDatabase(dataDir);
  const settings = { kind: "embedded", dataDir } as const;
  return Promise.all([openDatabase(settings, authMigrations), openDatabase(settings, pushMigrations)]);
}

it("is one for all who open it, until the last of them closes it", async () => {
  const dataDir = join(directory, "shared");
  const [auth, push] = await openBoth(dataDir);
  await auth.db.execute(sql`create temporary table of_this_connection ()`);
  await push.db.execute(sql`select from of_this_connection`);
  await auth.close();
  await push.db.execute(one);
  expect(existsSync(`${dataDir}.lock`)).toBe(true);
  await push.close();
  expect(existsSync(`${dataDir}.lock`)).toBe(false);
});

it("refuses what a transaction would wait for without end: a statement, or a transaction, that is not its own", async () => {
  const [auth, push] = await openBoth(join(directory, "waiting"));
  await expect(push.db.transaction(() => auth.db.execute(one))).rejects.toMatchObject({
    cause: { message: expect.stringContaining("its tx must run this: select 1 as one") },
  });
  await expect(push.db.transaction(() => auth.db.transaction(async () => undefined))).rejects.toThrow(
    "a transaction has the only connection",
  );
  await push.db.transaction((tx) => tx.transaction((nested) => nested.execute(one)));
  await auth.db.execute(one);
  await Promise.all([auth.close(), push.close()]);
});
