/** `npm run migrate` where settings are wrong. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { exitBadSettings } from "../src/platform/settings/settings.ts";
import { killAll, startNode } from "./support/program.ts";
import { suiteCleanup } from "./support/suite-cleanup.ts";

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
