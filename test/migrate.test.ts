/** `npm run migrate` where the settings are wrong. */
import { expect, test } from "vitest";
import { exitBadSettings } from "../src/platform/settings/settings.ts";
import { killAll, startNode } from "./support/program.ts";
import { suiteCleanup } from "./support/suite-cleanup.ts";

suiteCleanup().defer(killAll);

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
