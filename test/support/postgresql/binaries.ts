/** Where this machine has PostgreSQL's server programs. */
import { execFileSync } from "node:child_process";
import { existsSync, globSync } from "node:fs";
import { delimiter, join } from "node:path";

/** How to get them, for a person who has none. */
export const installPostgresql =
  "Install it (Debian, Ubuntu: apt-get install postgresql; macOS: brew install postgresql@17), " +
  "or name a server in TEST_POSTGRES_URL (a superuser's URL).";

/**
 * The directory that has these programs: on the PATH, where `pg_config` says, or where the
 * packages of Debian and Homebrew put it. Of several versions there, the newest. Undefined where there is none, or
 * where they could not be run: as root without a user `postgres`.
 */
export function findPostgresql(programs: readonly string[] = ["initdb", "postgres"]): string | undefined {
  if (isRoot && !serverUser()) return undefined;
  const suffix = process.platform === "win32" ? ".exe" : "";
  return candidates().find((directory) =>
    programs.every((program) => existsSync(join(directory, `${program}${suffix}`))),
  );
}

const isRoot = process.getuid?.() === 0;

/** Whom the server runs as where we are root, as it refuses to: the user that the packages make for it. */
export function serverUser(): { readonly uid: number; readonly gid: number } | undefined {
  if (!isRoot) return undefined;
  try {
    const id = (flag: string) =>
      Number(
        execFileSync("id", [flag, "postgres"], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }),
      );
    return { uid: id("-u"), gid: id("-g") };
  } catch {
    return undefined;
  }
}

function candidates(): readonly string[] {
  const installed = [
    "/usr/lib/postgresql/*/bin",
    "/opt/homebrew/opt/postgresql*/bin",
    "/usr/local/opt/postgresql*/bin",
  ].flatMap((pattern) => globSync(pattern));
  const version = new Intl.Collator("en", { numeric: true });
  return [
    ...(process.env["PATH"] ?? "").split(delimiter).filter((directory) => directory !== ""),
    ...configured(),
    ...installed.sort((a, b) => version.compare(b, a)),
  ];
}

/** What `pg_config` says; nothing where there is none. */
function configured(): readonly string[] {
  try {
    return [
      execFileSync("pg_config", ["--bindir"], {
        encoding: "utf8",
        stdio: ["ignore", "pipe", "ignore"],
      }).trim(),
    ];
  } catch {
    return [];
  }
}
