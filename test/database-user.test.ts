/** The two users of PostgreSQL: as the documentation creates them, and what production says to one who may do more. */
import { generateKeyPairSync, type KeyPairKeyObjectResult, randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import postgres from "postgres";
import { beforeAll, describe, expect, test } from "vitest";
import { parse } from "yaml";
import { postgresUrl, requiredPostgresUrl } from "./support/postgresql/server.ts";
import { killAll, root, startNode } from "./support/program.ts";
import { type Environment, type ServerProcess, spawnServer, startOwnServer } from "./support/servers.ts";
import { suiteCleanup } from "./support/suite-cleanup.ts";
import { waitFor } from "./support/wait-for.ts";

/** The statements of docs/deployment.md, with a name in place of "gatepost" that no other run has. */
function documentedStatements(name: string): string[] {
  const page = readFileSync(join(root, "docs/deployment.md"), "utf8");
  const [, section = ""] = page.split("\n## PostgreSQL\n");
  const [, commands = ""] = /```sh\n([\s\S]*?)```/.exec(section) ?? [];
  return [...commands.matchAll(/-c "([^"]*)"/g)].map(([, statement = ""]) =>
    statement.replaceAll("gatepost", name),
  );
}

/** As PEM. */
function keyPair({ privateKey, publicKey }: KeyPairKeyObjectResult) {
  return {
    privateKey: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
    publicKey: publicKey.export({ type: "spki", format: "pem" }).toString(),
  };
}
const rsaKey = () => keyPair(generateKeyPairSync("rsa", { modulusLength: 2048 }));
const ecKey = () => keyPair(generateKeyPairSync("ec", { namedCurve: "P-256" }));

const issuer = "https://id.example.com/api/auth";
const secret = () => randomBytes(24).toString("base64url");

/** All that production requires, but for the database. */
function productionSettings(): Environment {
  const signing = rsaKey();
  const clients = ["app", "backoffice"].map((clientId) => ({
    clientId,
    clientSecret: secret(),
    grantTypes: ["auth", "refresh_token"],
  }));
  return {
    NODE_ENV: "production",
    HOST: "127.0.0.1",
    DB_SSL: "disable",
    OAUTH_SERVER_ISSUER: issuer,
    OAUTH_SERVER_CLIENTS: JSON.stringify(clients),
    INTERNAL_CLIENT_ID: "internal",
    INTERNAL_CLIENT_SECRET: secret(),
    RSA_PRIVATE_KEY: signing.privateKey,
    RSA_PUBLIC_KEY: signing.publicKey,
    RSA_KEY_ID: "key-1",
    OTP_VERIFICATION_TOKEN_PUBLIC_KEY: ecKey().publicKey,
    OTP_VERIFIER_URL: "https://otp.example.com",
    PLATFORM_SECURITY_API_KEY: secret(),
    PLATFORM_SECURITY_URL: "http://127.0.0.1:1",
    IDENTITY_PROVIDER_ISSUER_URI: issuer,
    USER_APP_CLIENT_ID: "app",
    BACKOFFICE_CLIENT_ID: "backoffice",
    PUSH_PROVIDERS: "apns",
    APNS_KEY: ecKey().privateKey,
    APNS_KEY_ID: "ABCDE12345",
    APNS_TEAM_ID: "ABCDE12345",
    APNS_TOPIC: "com.example.app",
  };
}

/** The statements with which a compose file makes its users, with the passwords of the documentation. */
function composedStatements(file: string): string[] {
  const compose: { configs: { roles: { content: string } } } = parse(readFileSync(join(root, file), "utf8"));
  const [, script = ""] = /<<'SQL'\n([\s\S]*?)\n\s*SQL/.exec(compose.configs.roles.content) ?? [];
  return script
    .replace(":'app'", "'app-password'")
    .replace(":'migration'", "'migration-password'")
    .split("\n")
    .map((line) => line.trim().replace(/;$/, ""));
}

test("compose.yaml makes the same users, with passwords of one's own", () => {
  expect(composedStatements("compose.yaml")).toEqual(documentedStatements("gatepost"));
});

test("compose.cluster.yaml, with several hosts, makes them too, and gives the right by which standbys say more", () => {
  const statements = composedStatements("compose.cluster.yaml");
  expect(statements).toEqual(expect.arrayContaining(documentedStatements("gatepost")));
  const right = "grant pg_read_all_stats to gatepost";
  expect(statements).toContain(right);
  for (const page of ["docs/deployment.md", "docs/operate/kubernetes.md", "docs/operate/failover.md"])
    expect(readFileSync(join(root, page), "utf8"), page).toContain(right);
});

describe.runIf(postgresUrl())("the users of docs/deployment.md", () => {
  const cleanup = suiteCleanup();
  const name = `gatepost_test_${randomBytes(4).toString("hex")}`;
  const url = new URL(postgresUrl() ?? "postgres://none");
  const superuser = { DB_USER: `${name}_superuser`, DB_PASSWORD: "superuser-password" };
  const member = { DB_USER: `${name}_member`, DB_PASSWORD: "member-password" };
  const creator = { DB_USER: `${name}_creator`, DB_PASSWORD: "creator-password" };
  const ordinary = { DB_USER: name, DB_PASSWORD: "app-password" };
  const owner = { DB_USER: `${name}_migration`, DB_PASSWORD: "migration-password" };
  const migration = { DB_USER_MIGRATION: owner.DB_USER, DB_PASSWORD_MIGRATION: owner.DB_PASSWORD };
  const production = {
    ...productionSettings(),
    DB_HOST: url.hostname,
    DB_PORT: url.port || "5432",
    DB_NAME: name,
  };

  let admin: postgres.Sql;
  beforeAll(async () => {
    admin = postgres(requiredPostgresUrl().href, { max: 1, onnotice: () => undefined });
    cleanup.defer(async () => {
      killAll();
      await admin.unsafe(`drop database if exists ${name} with (force)`);
      for (const { DB_USER } of [creator, ordinary, superuser, member, owner])
        await admin.unsafe(`drop role if exists ${DB_USER}`);
      await admin.end();
    });
    const statements = documentedStatements(name);
    expect(statements.length).toBeGreaterThan(3);
    for (const statement of statements) await admin.unsafe(statement);
    const login = ({ DB_USER, DB_PASSWORD }: typeof member) => `${DB_USER} login password '${DB_PASSWORD}'`;
    await admin.unsafe(`create role ${login(superuser)} superuser`);
    await admin.unsafe(`create role ${login(member)} in role ${owner.DB_USER}`);
    await admin.unsafe(`create role ${login(creator)} createrole in role ${ordinary.DB_USER}`);
    const migrate = startNode("src/migrate.ts", { ...production, ...ordinary, ...migration });
    expect(await migrate.ended(), migrate.output()).toBe(0);
  });

  /** What a server in production says that does not start. */
  async function refusal(user: Environment): Promise<string> {
    const started: Promise<ServerProcess> = spawnServer("PostgreSQL", { env: { ...production, ...user } });
    return started.then(
      async (server) => {
        await server.stop();
        return "it is ready";
      },
      (error: Error) => error.message,
    );
  }

  test("the ordinary one is enough for production: both services are ready", async () => {
    expect(await refusal(ordinary)).toBe("it is ready");
  });

  test("the ordinary one is enough for everything that the services do", async () => {
    const { DB_HOST, DB_PORT, DB_NAME } = production;
    const env = { DB_HOST, DB_PORT, DB_NAME, ...ordinary, ...migration };
    const server = await startOwnServer("PostgreSQL", { env });
    cleanup.defer(() => server.stop());
    const demo = startNode("scripts/demo.ts", { GATEPOST_URL: server.origin, GATEPOST_GRPC: server.grpc });
    expect(await demo.ended(), demo.output()).toBe(0);
    expect(server.logs()).not.toContain("permission denied");
  });

  test("the ordinary one cannot drop, empty or alter a table of either service", async () => {
    const sql = postgres({
      host: url.hostname,
      port: Number(url.port || 5432),
      database: name,
      username: ordinary.DB_USER,
      password: ordinary.DB_PASSWORD,
      max: 1,
    });
    cleanup.defer(() => sql.end());
    const tables = await sql<{ name: string }[]>`
      select format('%I.%I', schemaname, tablename) as name from pg_tables
      where schemaname in ('auth', 'push', 'migrations')`;
    expect(tables.length).toBeGreaterThan(15);
    for (const { name: table } of tables) {
      for (const statement of [
        `drop table ${table}`,
        `truncate ${table}`,
        `alter table ${table} add more int`,
      ]) {
        const code = await sql.unsafe(statement).then(
          () => "done",
          (error: postgres.PostgresError) => error.code,
        );
        expect(code, statement).toBe("42501");
      }
    }
  });

  const next = "Create one, and run the migrations with it as DB_USER, which grants it what it needs";
  test.each([
    ["a superuser", superuser, "who is a superuser"],
    ["one who may create roles", creator, "who may create roles"],
    ["the user that migrates", owner, "who owns the database"],
    ["a member of the role that migrates", member, "who owns the database"],
  ])("production refuses %s, with the next step, and ends with 78", async (_, user, reason) => {
    const said = await refusal(user);
    expect(said).toContain("the server exited with 78");
    expect(said).toMatch(
      new RegExp(`^  DB_USER is ${user.DB_USER}, (${reason}); in production it must be`, "m"),
    );
    expect(said).toContain(next);
    expect(said.match(/^ {2}DB_USER is/gm)).toHaveLength(1);
    expect(said).not.toMatch(/^\s+at /m);
    expect(said).not.toContain(user.DB_PASSWORD);
  });

  test("production refuses the owner of the schemas, whoever owns the database", async () => {
    await admin.unsafe(`alter database ${name} owner to ${superuser.DB_USER}`);
    await admin.unsafe(`grant connect on database ${name} to ${owner.DB_USER}`);
    const said = await refusal(owner);
    await admin.unsafe(`alter database ${name} owner to ${owner.DB_USER}`);
    expect(said).toMatch(/who owns the schema (auth|push);/);
  });

  test("development mode runs as anybody", async () => {
    const { DB_HOST, DB_PORT, DB_NAME } = production;
    const server = await startOwnServer("PostgreSQL", { env: { DB_HOST, DB_PORT, DB_NAME, ...owner } });
    await server.stop();
  });

  test("an ordinary user who may not connect is named, and not migrations that are done", async () => {
    await admin.unsafe(`revoke connect on database ${name} from public, ${ordinary.DB_USER}`);
    const ports = { SERVER_PORT: "0", GRPC_PORT: "0", MANAGEMENT_PORT: "0" };
    const server = startNode("src/start.js", { ...production, ...ports, ...ordinary });
    await waitFor(() => expect(server.output()).toContain("permission denied for database"));
    expect(server.output()).toContain(
      "Check DB_USER and DB_USER_MIGRATION, and what the database grants them.",
    );
    expect(server.output()).not.toContain("Migrations are pending");
    await admin.unsafe(`grant connect on database ${name} to ${ordinary.DB_USER}`);
  });

  test("migrations in production are refused as DB_USER, before anything is done", async () => {
    const asOwner = { ...production, ...owner, ...migration };
    const migrate = startNode("src/migrate.ts", asOwner);
    expect(await migrate.ended()).toBe(78);
    expect(migrate.stderr()).toContain(`DB_USER_MIGRATION is ${owner.DB_USER}, as is DB_USER`);
    expect(migrate.stdout()).toBe("");
  });
});
