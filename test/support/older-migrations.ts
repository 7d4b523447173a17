/** The migrations that an older version of a service has, for tests of what becomes of its rows. */
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { onTestFinished } from "vitest";
import type { Migrations } from "../../src/platform/database/migrations/migrations.ts";

/** The first migrations of a service, up to and with the one of this number. */
export function olderMigrations(migrations: Migrations, last: number): Migrations {
  const folder = mkdtempSync(join(tmpdir(), "gatepost-migrations-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  cpSync(fileURLToPath(migrations.folder), folder, { recursive: true });
  const journal = join(folder, "meta", "_journal.json");
  const { entries, ...rest }: { entries: { idx: number }[] } = JSON.parse(readFileSync(journal, "utf8"));
  writeFileSync(journal, JSON.stringify({ ...rest, entries: entries.filter(({ idx }) => idx <= last) }));
  return { ...migrations, folder: pathToFileURL(`${folder}/`) };
}
