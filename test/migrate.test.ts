/** `npm run migrate` where settings are wrong, and where somebody has locked a table. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import postgres from "postgres";
import { expect, test } from "vitest";
import { exitBadSettings } from "../src/platform/settings/settings.ts";
import { createMigratedDatabase } from "./support/migrated-database.ts";
import { requiredPostgresUrl } from "./support/postgresql/server.ts";
import { killAll, startNode, startProgram } from "./support/program.ts";
import { backends, databaseEnvironment } from "./support/servers.ts";
import { suiteCleanup } from "./support/suite-cleanup.ts";
import { waitFor } from "./support/wait-for.ts";

const cleanup = suiteCleanup();
cleanup.defer(killAll);

test("a wrong environment is named beside the settings that production lacks", async () => {
  const program = startNode("src/migrate.ts", { NODE_ENV: "Production", SERVICES: "auth", DB_USER: "app" });
  expect(await program.ended(), program.output()).toBe(exitBadSettings);
  expect(program.stderr()).toContain("NODE_ENV");
  expect(program.stderr()).toContain("DB_HOST");
});

test("an unknown service is named", async () => {
  const program = startNode("src/migrate.ts", { NODE_ENV: "development", SERVICES: "mail" });
  expect(await program.ended(), program.output()).toBe(exitBadSettings);
  expect(program.stderr()).toContain("SERVICES");
});

test("a setting that only a server has does not keep the schema from being migrated", async () => {
  const directory = mkdtempSync(join(tmpdir(), "gatepost-migrate-"));
  cleanup.defer(() => rmSync(directory, { recursive: true, force: true }));
  const program = startNode("src/migrate.ts", {
    NODE_ENV: "development",
    SERVICES: "auth",
    DATA_DIR: directory,
    SERVER_PORT: "none",
    TLS_CERT_FILE: "/nowhere",
  });
  expect(await program.ended(), program.output()).toBe(0);
  expect(program.output()).toContain('The schema "auth" is up to date');
});

const status = (env: Record<string, string>) =>
  startProgram([process.execPath, "src/migrate.ts", "--status"], { SERVICES: "auth", ...env });

test("--status says what would be run in an empty database, and exits with 3", async () => {
  const directory = mkdtempSync(join(tmpdir(), "gatepost-status-"));
  cleanup.defer(() => rmSync(directory, { recursive: true, force: true }));
  const missing = status({ DATA_DIR: directory });
  expect(await missing.ended(), missing.output()).toBe(3);
  expect(missing.stdout()).toBe("auth/0000_first: would be run\n");
});

test.runIf(backends.includes("PostgreSQL"))(
  "--status changes nothing in PostgreSQL, and takes a database of a newer version for up to date",
  async () => {
    const database = await createMigratedDatabase();
    cleanup.defer(() => database.drop());
    const url = requiredPostgresUrl();
    url.pathname = `/${database.name}`;
    const admin = postgres(url.href, { max: 1, onnotice: () => undefined });
    cleanup.defer(() => admin.end());
    const exit = async (code: number) => {
      const program = status(databaseEnvironment(database));
      expect(await program.ended(), program.output()).toBe(code);
      return program.stdout();
    };
    expect(await exit(0)).toBe("auth/0000_first: has been run\n");
    await admin`insert into migrations.auth (hash, created_at) values ('newer', 9000000000000)`;
    await exit(0);
    await admin.unsafe("drop schema migrations cascade");
    expect(await exit(3)).toContain("0000_first: would be run");
    expect(await admin`select from pg_namespace where nspname = 'migrations'`).toHaveLength(0);
  },
);

/** Sets the clock of a process forward by 590 seconds at each SIGUSR2. */
const clockAhead = `data:text/javascript,
  const now = performance.now.bind(performance);
  let ahead = 0;
  performance.now = () => now() + ahead;
  process.on("SIGUSR2", () => { ahead += 590_000; });`;

test.runIf(backends.includes("PostgreSQL"))(
  "a table that is locked is waited for, still after nine minutes, and no longer than ten",
  async () => {
    const database = await createMigratedDatabase();
    cleanup.defer(() => database.drop());
    const url = requiredPostgresUrl();
    url.pathname = `/${database.name}`;
    const locking = postgres(url.href, { max: 1, onnotice: () => undefined });
    cleanup.defer(() => locking.end());
    await locking.unsafe("begin; lock table migrations.auth in access exclusive mode");
    const program = startProgram(
      [process.execPath, "--import", "./src/installed.js", "--import", clockAhead, "src/migrate.ts"],
      { ...databaseEnvironment(database), SERVICES: "auth" },
    );
    const tries = () => program.stderr().split("Trying again for up to 10 minutes.").length - 1;
    await waitFor(() => expect(tries()).toBe(1));
    // It is in the pause between two tries.
    program.child.kill("SIGUSR2");
    await waitFor(() => expect(tries()).toBe(2));
    program.child.kill("SIGUSR2");
    expect(await program.ended(), program.output()).toBe(1);
    expect(tries()).toBe(2);
    expect(program.stderr().trimEnd()).toMatch(
      /A migration needs a table that another session has locked\.[^\n]*$/,
    );
  },
);
