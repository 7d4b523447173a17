/**
 * Migrated embedded databases to copy: making one takes seconds, copying it does not. Made once for each
 * service and state of its migrations, where later runs find them.
 */
import { createHash, randomUUID } from "node:crypto";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { authMigrations } from "../../src/auth/service.ts";
import type { OpenDatabase } from "../../src/platform/database/database.ts";
import type { Migrations } from "../../src/platform/database/migrations/migrations.ts";
import { openDatabase } from "../../src/platform/database/open.ts";
import { lastingDirectory } from "./run-directory.ts";

const embeddedVersion = "../../node_modules/@electric-sql/pglite/package.json";

function fingerprint({ folder }: Migrations): string {
  const hash = createHash("sha256");
  for (const file of readdirSync(folder).sort()) {
    if (file.endsWith(".sql")) hash.update(readFileSync(new URL(file, `${folder}/`)));
  }
  hash.update(readFileSync(new URL(embeddedVersion, import.meta.url)));
  return hash.digest("hex").slice(0, 16);
}

/** A database as it is when it has just been created. */
const nothing: Migrations = { schema: "empty", folder: new URL("../../drizzle/", import.meta.url) };

/** Puts an embedded database without any tables into this directory. Creating one takes seconds, too. */
export function copyEmptyEmbeddedDatabase(target: string): Promise<void> {
  return copyTemplate(target, nothing, async () => undefined);
}

/**
 * Puts a migrated embedded database into this directory, unless there is one: a server that was stopped starts
 * again on its own data.
 * @param migrations the auth service's unless given
 */
export async function copyEmbeddedDatabase(
  target: string,
  migrations: Migrations = authMigrations,
): Promise<void> {
  if (!existsSync(target)) await copyTemplate(target, migrations, (database) => database.migrate());
}

/** PostgreSQL's template1 and template0, from which nothing is made here: two thirds of the files to copy. */
const ownTemplates = ["1", "4"];

async function copyTemplate(
  target: string,
  migrations: Migrations,
  fill: (database: OpenDatabase) => Promise<void>,
): Promise<void> {
  const template = join(
    lastingDirectory(),
    `gatepost-embedded-lean-${migrations.schema}-${fingerprint(migrations)}`,
  );
  if (!existsSync(template)) {
    const mine = `${template}-${randomUUID()}`;
    const database = await openDatabase({ kind: "embedded", dataDir: mine }, migrations);
    await fill(database);
    await database.close();
    for (const unused of ownTemplates) rmSync(join(mine, "base", unused), { recursive: true });
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
