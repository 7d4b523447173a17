/** Back-ups of a test's database, by the commands that docs/operate/backup.md prints. */
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import type { TestDatabase } from "../backends.ts";
import { root } from "../program.ts";
import { findPostgresql } from "./binaries.ts";
import { requiredPostgresUrl } from "./server.ts";

const programs = findPostgresql(["pg_dump", "pg_restore", "psql"]);

/** Whether this machine has the programs. */
export const canBackUp = programs !== undefined;

/** The first command block of the page after this text. */
function printedAfter(text: string): string {
  const page = readFileSync(join(root, "docs/operate/backup.md"), "utf8");
  const [, block = ""] = /```sh\n([\s\S]*?)```/.exec(page.split(text)[1] ?? "") ?? [];
  if (block === "") throw new Error(`The page prints no commands after: ${text}`);
  return block.replaceAll(/^ *\$ /gm, "");
}

/** Runs commands of the page with other names than the page's. @returns what they print */
function run(script: string, names: readonly (readonly [printed: string, own: string])[]): string {
  const { hostname, port, username, password } = requiredPostgresUrl();
  const known = [["postgres.internal", hostname], ["-U postgres", `-U ${username}`], ...names] as const;
  const own = known.reduce((text, [printed, name]) => text.replaceAll(printed, name), script);
  return execFileSync("sh", ["-ec", own.replaceAll("user=postgres", `user=${username}`)], {
    env: {
      PATH: [programs, process.env["PATH"]].join(delimiter),
      PGPORT: port || "5432",
      PGPASSWORD: decodeURIComponent(password),
    },
    encoding: "utf8",
    stdio: "pipe",
  });
}

/** Dumps the database of this name to a file. */
export function dump(database: string, file: string): void {
  run(printedAfter("second best:"), [
    ["gatepost.dump", file],
    ["dbname=gatepost", `dbname=${database}`],
  ]);
}

/** Restores a dump in place of this database. @returns to which moments its data goes, as `psql` prints them */
export function restore({ name, user, migrationUser }: TestDatabase, file: string): string {
  run(`psql -h postgres.internal -U postgres -c "drop database ${name}"`, []);
  const names = [
    ["gatepost.dump", file],
    ["owner gatepost_migration", `owner ${migrationUser}`],
    [" to gatepost", ` to ${user}`],
    ["database gatepost", `database ${name}`],
    ["dbname=gatepost", `dbname=${name}`],
    ["-U postgres gatepost", `-U postgres ${name}`],
  ] as const;
  run(printedAfter("2. **Restore.**"), names);
  return run(printedAfter("to which moment the data goes:"), names);
}
