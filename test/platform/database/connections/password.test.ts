/** Passwords of other letters than ASCII, as PostgreSQL itself and psql take them. */
import { readFileSync, writeFileSync } from "node:fs";
import postgres from "postgres";
import { beforeAll, describe, expect, test } from "vitest";
import { authMigrations } from "../../../../src/auth/service.ts";
import { clientOptions } from "../../../../src/platform/database/connections/client-options.ts";
import { openConnection } from "../../../../src/platform/database/connections/open-connection.ts";
import { ordinaryLogin } from "../../../../src/platform/database/connections/ordinary-login.ts";
import { checkResponds } from "../../../../src/platform/database/connections/session.ts";
import { openDatabase } from "../../../../src/platform/database/open.ts";
import type { Reread } from "../../../../src/platform/settings/settings.ts";
import { postgresSettings } from "../../../support/backends.ts";
import { captureLog } from "../../../support/captured-log.ts";
import { findPostgresql } from "../../../support/postgresql/binaries.ts";
import { startCluster } from "../../../support/postgresql/cluster.ts";
import { suiteCleanup } from "../../../support/suite-cleanup.ts";

const binaries = findPostgresql();

describe.runIf(binaries !== undefined)("a password that PostgreSQL keeps for", () => {
  let admin: postgres.Sql;
  let address: { readonly host: string; readonly port: number };
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    const cluster = await startCluster(binaries ?? "", ["fsync=off"]);
    cleanup.defer(() => cluster.stop());
    const { hostname: host, port } = new URL(cluster.url);
    address = { host, port: Number(port) };
    admin = postgres(cluster.url, { max: 1, onnotice: () => undefined });
    cleanup.defer(() => admin.end());
    const file = String((await admin`show hba_file`)[0]?.["hba_file"]);
    const trusted = readFileSync(file, "utf8");
    // What is not of these tests stays as it is.
    writeFileSync(
      file,
      `host all scram 127.0.0.1/32 scram-sha-256\nhost all md5 127.0.0.1/32 md5\n${trusted}`,
    );
    await admin`select pg_reload_conf()`;
    await admin.unsafe("create role scram login; create role md5 login");
  });

  /** Whether both users, the ordinary one and that of migrations, can sign in. */
  async function signIn(user: "scram" | "md5", password: string): Promise<boolean[]> {
    const of = { user, password, migrationUser: user, migrationPassword: password };
    const database = await openDatabase(
      postgresSettings({ ...address, name: "postgres", ...of }),
      authMigrations,
    );
    try {
      const refused = (error: { code?: string; cause?: { code?: string } }) =>
        (error.cause?.code ?? error.code) !== "28P01";
      return await Promise.all([
        database.db.execute("select 1").then(() => true, refused),
        // It may not migrate, but is let in to be told so.
        database.migrate().then(() => true, refused),
      ]);
    } finally {
      await database.close();
    }
  }

  const passwords = {
    "½ of it": "a fraction",
    "a\u00a0b\u3000c": "spaces",
    "cafe\u0301": "a letter and its accent",
    ﬁle: "a ligature",
    Ⅸ: "a Roman number",
    "x\u00ady\u200dz": "what is mapped to nothing",
    "heart \u2764\ufe0f": "an emoji and its variation",
    "½ \u{1f600}": "a character that SASLprep does not know, so that nothing is changed",
    "½ \u0007": "one that it forbids",
    "½ \u0627 x": "both directions",
  };
  test.each(Object.entries(passwords))("SCRAM lets %j in: %s", async (password) => {
    await admin.unsafe(`alter role scram password '${password}'`);
    expect(await signIn("scram", password)).toEqual([true, true]);
    expect(await signIn("scram", `${password}!`)).toEqual([false, false]);
  });

  test("SCRAM refuses is read again, and what cannot be read is said once", async () => {
    await admin.unsafe("alter role scram password 'first'");
    const of = { user: "scram", password: "first", migrationUser: "scram", migrationPassword: "first" };
    let file: Reread<string> = { problem: "DB_PASSWORD_FILE names nothing" };
    const settings = {
      ...postgresSettings({ ...address, name: "postgres", ...of }),
      rereadPassword: () => file,
    };
    const { logger, lines } = captureLog();
    const login = ordinaryLogin(settings, logger);
    const connects = async () => {
      const options = {
        address,
        prepare: false,
        timeoutMs: 5_000,
        client: clientOptions(settings, address, login, {}),
        renewPassword: login.renew,
        check: checkResponds,
      };
      const connection = await openConnection(options, () => undefined);
      await connection.terminate();
    };
    await connects();
    await admin.unsafe("alter role scram password 'second'");
    const refusal = { code: "28P01" };
    await expect(connects()).rejects.toMatchObject(refusal);
    await expect(connects()).rejects.toMatchObject(refusal);
    // Half of it was written.
    file = { value: "sec" };
    await expect(connects()).rejects.toMatchObject(refusal);
    file = { value: "second" };
    await connects();
    file = { value: "third" };
    await connects();
    await admin.unsafe("alter role scram password 'third'");
    await connects();
    const read = "The database's password was refused, and read again from its file";
    expect(lines().map(({ msg }) => msg)).toEqual([
      "The database's password was refused, and cannot be read again: DB_PASSWORD_FILE names nothing",
      read,
      read,
      read,
    ]);
  });

  test("MD5 lets it in, as it is", async () => {
    const password = "½ of MD5";
    await admin.unsafe(`set password_encryption = md5; alter role md5 password '${password}'`);
    expect(await signIn("md5", password)).toEqual([true, true]);
  });
});
