/**
 * A migrated embedded database to copy: making one takes seconds, copying it does not. Made once for each
 * state of the migrations, under the system's temporary directory.
 */
import { createHash, randomUUID } from "node:crypto";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { authMigrations } from "../../src/auth/service.ts";
import { openDatabase } from "../../src/platform/open-database.ts";

function fingerprint(): string {
  const hash = createHash("sha256");
  for (const file of readdirSync(authMigrations.folder).sort()) {
    if (file.endsWith(".sql")) hash.update(readFileSync(new URL(file, `${authMigrations.folder}/`)));
  }
  hash.update(readFileSync(new URL("../../node_modules/@electric-sql/pglite/package.json", import.meta.url)));
  return hash.digest("hex").slice(0, 16);
}

/** Puts a migrated embedded database of the auth service into this directory, unless there is one: a server that was stopped starts again on its own data. */
export async function copyEmbeddedDatabase(target: string): Promise<void> {
  if (existsSync(target)) return;
  const template = join(tmpdir(), `gatepost-embedded-${fingerprint()}`);
  if (!existsSync(template)) {
    const mine = `${template}-${randomUUID()}`;
    const database = await openDatabase({ kind: "embedded", dataDir: mine }, authMigrations);
    await database.migrate();
    await database.close();
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
