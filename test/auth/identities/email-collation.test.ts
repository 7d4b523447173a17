/** E-mail addresses where the database folds letters by the rules of a language. */
import { randomBytes } from "node:crypto";
import postgres from "postgres";
import { expect, test } from "vitest";
import { createIdentities } from "../../../src/auth/identities/identities.ts";
import { authMigrations } from "../../../src/auth/service.ts";
import { systemClock } from "../../../src/platform/base/clock.ts";
import { openDatabase } from "../../../src/platform/database/open.ts";
import { newPhone } from "../../support/auth-api.ts";
import { createTestDatabase, postgresSettings } from "../../support/backends.ts";
import { requiredPostgresUrl } from "../../support/postgresql/server.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

const cleanup = suiteCleanup();

test.runIf(backends.includes("PostgreSQL")).each(["tr-TR", "az"])(
  "an address is one in every case of its letters, in a database whose language is %s",
  async (locale) => {
    const template = `gatepost_test_${randomBytes(6).toString("hex")}`;
    const admin = postgres(requiredPostgresUrl().href, { max: 1, onnotice: () => undefined });
    cleanup.defer(() => admin.end());
    await admin.unsafe(
      `create database ${template} template template0 encoding utf8 locale_provider icu icu_locale '${locale}'`,
    );
    cleanup.defer(async () => void (await admin.unsafe(`drop database ${template}`)));
    const own = await createTestDatabase({ template });
    cleanup.defer(() => own.drop());
    const database = await openDatabase(postgresSettings(own), authMigrations);
    cleanup.defer(() => database.close());
    await database.migrate();
    const identities = createIdentities(database.db, systemClock);

    await identities.create("first", { phone: newPhone(), email: "Irina.Ivanova@Example.com" });
    const taken = identities.create("second", { phone: newPhone(), email: "IRINA.IVANOVA@EXAMPLE.COM" });
    await expect(taken).rejects.toMatchObject({ kind: { code: "identity_email_taken" } });
    const spellings = ["irina.ivanova@example.com", "IRINA.IVANOVA@EXAMPLE.COM", "Irina.Ivanova@Example.com"];
    for (const spelling of spellings)
      expect(await identities.findByUsername(spelling), spelling).toMatchObject({ id: "first" });
    expect(await identities.findByUsername("ırina.ıvanova@example.com")).toBeUndefined();
  },
);
