/** Histories of migrations that go on from those of a service, for tests of what comes next. */
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { onTestFinished } from "vitest";
import type { Migrations } from "../../src/platform/database/migrations/migrations.ts";

interface Journal {
  readonly entries: readonly { readonly idx: number; readonly when: number; readonly tag: string }[];
}

/** The history of a service, with its entries changed and one more file. @param sql of that file, 9999_next.sql */
function changed<M extends Pick<Migrations, "folder">>(
  migrations: M,
  change: (entries: Journal["entries"]) => Journal["entries"],
  sql: string,
): M {
  const folder = mkdtempSync(join(tmpdir(), "gatepost-history-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  cpSync(fileURLToPath(migrations.folder), folder, { recursive: true });
  const file = join(folder, "meta", "_journal.json");
  const journal: Journal = JSON.parse(readFileSync(file, "utf8"));
  writeFileSync(file, JSON.stringify({ ...journal, entries: change(journal.entries) }));
  writeFileSync(join(folder, "9999_next.sql"), sql);
  return { ...migrations, folder: pathToFileURL(`${folder}/`) };
}

/** The history of a service with one more migration, until the test is finished. */
export function withNextMigration<M extends Pick<Migrations, "folder">>(migrations: M, sql: string): M {
  return changed(
    migrations,
    (entries) => {
      const newest = entries.at(-1);
      if (!newest) throw new Error("There is no migration to go on from.");
      return [...entries, { ...newest, idx: newest.idx + 1, when: newest.when + 1, tag: "9999_next" }];
    },
    sql,
  );
}

/** The history of an earlier tree, with one migration of its own, until the test is finished. */
export function earlierMigrations<M extends Pick<Migrations, "folder">>(migrations: M, sql: string): M {
  return changed(
    migrations,
    (entries) => entries.slice(0, 1).map((first) => ({ ...first, when: first.when - 1, tag: "9999_next" })),
    sql,
  );
}
