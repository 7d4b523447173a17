/** Back-ups of a test's database, by PostgreSQL's own programs. */
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { findPostgresql } from "./binaries.ts";
import { requiredPostgresUrl } from "./server.ts";

const programs = findPostgresql(["pg_dump", "pg_restore"]);

/** Whether this machine has the programs. */
export const canBackUp = programs !== undefined;

function run(program: string, database: string, ...args: string[]): void {
  const url = requiredPostgresUrl();
  url.pathname = `/${database}`;
  execFileSync(join(programs ?? "", program), [`--dbname=${url}`, ...args], { stdio: "pipe" });
}

/** Dumps the database of this name to a file, as docs/operate/backup.md does. */
export function dump(database: string, file: string): void {
  run("pg_dump", database, "--format=custom", `--file=${file}`);
}

/** Restores a dump into the database of this name, likewise. */
export function restore(database: string, file: string): void {
  run("pg_restore", database, "--clean", "--if-exists", "--exit-on-error", "--single-transaction", file);
}
