/** A wrong setting of the database, in one line: what is wrong, which setting it is, and no secret. */
import { describe, expect, it } from "vitest";
import { authMigrations } from "../src/auth/service.ts";
import { databaseFailure } from "../src/platform/database/failure.ts";
import { openDatabase } from "../src/platform/database/open.ts";
import { resolveDatabaseSettings } from "../src/platform/database/settings.ts";
import { valueOrThrow } from "../src/platform/settings/settings.ts";
import { postgresUrl } from "./support/postgresql/server.ts";

/** The reasons for the ordinary user, as in production, and for the migration user, as in development. */
async function failures(env: Record<string, string>): Promise<(string | undefined)[]> {
  const options = { environment: "development", service: "auth", dataDir: "/nowhere" } as const;
  const settings = valueOrThrow(resolveDatabaseSettings({ DB_PASSWORD: "hunter2", ...env }, options));
  const database = await openDatabase(settings, authMigrations);
  const reasons = [];
  for (const use of [database.isMigrated, database.migrate]) {
    reasons.push(
      await use().then(
        () => "it can be used",
        (error) => databaseFailure(error),
      ),
    );
  }
  await database.close();
  return reasons;
}

const sentence = (cause: string, step: string) => `The database cannot be used: ${cause}. ${step}`;

it("names DB_HOST and DB_PORT if nothing listens there", async () => {
  // Nothing listens at port 1.
  const expected = sentence(
    "connect ECONNREFUSED 127.0.0.1:1",
    "Check that PostgreSQL runs there, DB_HOST and DB_PORT.",
  );
  expect(await failures({ DB_HOST: "127.0.0.1", DB_PORT: "1" })).toEqual([expected, expected]);
});

it("names DB_HOST where there is no such host", async () => {
  const said = await failures({ DB_HOST: "postgres.invalid" });
  for (const text of said)
    expect(text).toMatch(
      /^The database cannot be used: getaddrinfo E\w+ postgres\.invalid\. Check DB_HOST\.$/,
    );
});

it.each([
  ["53100", "The disk of the database is full: words. Free or add room on the disk of PostgreSQL"],
  ["53300", "The database takes no more connections: words. Lower DB_POOL_SIZE"],
  ["55P03", "A lock in the database was not released in time: words."],
  ["57014", "A statement took too long, and was cancelled: words."],
  ["25006", "The database is read-only: words. Check default_transaction_read_only"],
  ["57P01", "The database is starting up or shutting down: words. Check that PostgreSQL runs there"],
  ["57P03", "The database is starting up or shutting down: words. Check that PostgreSQL runs there"],
])("says of SQLSTATE %s what is wrong: %s", (code, said) => {
  const error = Object.assign(new Error("words"), { code, severity: "ERROR" });
  expect(databaseFailure(new Error("The query failed", { cause: error }))).toMatch(said);
});

it("is undefined for a defect", () => {
  expect(databaseFailure(new TypeError("x is undefined"))).toBeUndefined();
});

const url = postgresUrl();
describe.runIf(url)("on PostgreSQL", () => {
  const { hostname = "", port, username = "" } = url ?? {};
  const there = { DB_HOST: hostname, DB_PORT: port || "5432", DB_USER: username };

  it("names DB_NAME where there is no such database", async () => {
    const expected = sentence(
      'database "gatepost_nowhere" does not exist',
      "Check DB_NAME, or create the database.",
    );
    expect(await failures({ ...there, DB_NAME: "gatepost_nowhere" })).toEqual([expected, expected]);
  });

  it("names user and password if there is no such user", async () => {
    const said = await failures({ ...there, DB_NAME: "postgres", DB_USER: "gatepost_nobody" });
    for (const text of said) {
      expect(text).toMatch(
        /^The database cannot be used: .*"gatepost_nobody".*\. Check DB_USER and DB_PASSWORD, /,
      );
      expect(text).not.toContain("hunter2");
    }
  });
});
