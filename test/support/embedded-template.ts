/**
 * Embedded databases to copy: making one takes seconds, copying it does not. Made once for each state of the
 * migrations, where later runs find them.
 */
import { createHash, randomUUID } from "node:crypto";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { authMigrations } from "../../src/auth/service.ts";
import type { Migrations } from "../../src/platform/database/migrations/migrations.ts";
import { openDatabase } from "../../src/platform/database/open.ts";
import { pushMigrations } from "../../src/push/database.ts";
import { lastingDirectory } from "./run-directory.ts";

const sources = [
  "../../node_modules/@electric-sql/pglite/package.json",
  "../../src/platform/database/create-embedded.js",
  "../../src/platform/database/embedded-client.ts",
];

function fingerprint(migrations: readonly Migrations[]): string {
  const hash = createHash("sha256");
  for (const { folder } of migrations) {
    for (const file of readdirSync(folder).sort()) {
      if (file.endsWith(".sql")) hash.update(readFileSync(new URL(file, `${folder}/`)));
    }
    // When each was made, by which a database knows those that it has.
    hash.update(readFileSync(new URL("meta/_journal.json", `${folder}/`)));
  }
  for (const source of sources) hash.update(readFileSync(new URL(source, import.meta.url)));
  return hash.digest("hex").slice(0, 16);
}

/** Puts an embedded database without any tables into this directory. Creating one takes seconds, too. */
export function copyEmptyEmbeddedDatabase(target: string): Promise<void> {
  return copyTemplate(target, "empty", []);
}

/**
 * Puts an embedded database into this directory in which both services are migrated, unless there is one: a server that
 * was stopped starts again on its own data.
 */
export async function copyEmbeddedDatabase(target: string): Promise<void> {
  if (!existsSync(target)) await copyTemplate(target, "migrated", [authMigrations, pushMigrations]);
}

async function copyTemplate(target: string, name: string, migrations: readonly Migrations[]): Promise<void> {
  const template = join(lastingDirectory(), `gatepost-embedded-${name}-${fingerprint(migrations)}`);
  if (!existsSync(template)) {
    const mine = `${template}-${randomUUID()}`;
    await makeTemplate(mine, migrations);
    try {
      renameSync(mine, template);
    } catch {
      // Another process was first; its copy is as good.
      rmSync(mine, { recursive: true, force: true });
    }
  }
  mkdirSync(target, { recursive: true });
  cpSync(template, target, { recursive: true });
}

async function makeTemplate(dataDir: string, migrations: readonly Migrations[]): Promise<void> {
  // Open until all are done: the last to close it ends it.
  const { close } = await openDatabase({ kind: "embedded", dataDir }, authMigrations);
  for (const service of migrations) {
    const database = await openDatabase({ kind: "embedded", dataDir }, service);
    await database.migrate();
    await database.close();
  }
  await close();
}
