import { sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/postgres-js";
import { migrate } from "drizzle-orm/postgres-js/migrator";
import postgres from "postgres";
import type { OpenDatabase } from "./database.ts";
import type { DatabaseSettings } from "./database-settings.ts";
import { isMigrated, type Migrations, migrationConfig } from "./migrations.ts";

type PostgresSettings = Extract<DatabaseSettings, { kind: "postgres" }>;

/** Seconds that connecting, and closing, may take. */
const timeoutSeconds = 5;
/** Milliseconds that one statement of the ordinary user may take. */
const statementTimeoutMs = 5_000;
/** Any fixed number; whoever migrates holds it as an advisory lock. */
const migrationLock = 7_214_033;

interface Login {
  readonly user: string;
  readonly password: string | undefined;
  readonly connections: number;
  /** 0: none. */
  readonly statementTimeoutMs: number;
}

function connect({ host, port, name, ssl, sslCa }: PostgresSettings, login: Login): postgres.Sql {
  return postgres({
    host,
    port,
    database: name,
    username: login.user,
    ...(login.password !== undefined && { password: login.password }),
    max: login.connections,
    ssl:
      ssl === "disable" ? false : { rejectUnauthorized: ssl === "verify-full", ...(sslCa && { ca: sslCa }) },
    connect_timeout: timeoutSeconds,
    idle_timeout: 300,
    connection: { application_name: "gatepost", statement_timeout: login.statementTimeoutMs },
    onnotice: () => undefined,
  });
}

/**
 * Drizzle asks for statements that are not prepared. Ours are few and fixed, so each is parsed and planned
 * once for a connection. (Inside a transaction the driver hands out another object, which is left as it is.)
 */
function preparing(client: postgres.Sql): postgres.Sql {
  const unsafe = client.unsafe;
  client.unsafe = (query, parameters, options) => unsafe(query, parameters, { ...options, prepare: true });
  return client;
}

/** A pool of connections as the ordinary user; the first is made when it is needed. */
export function openPostgresql(settings: PostgresSettings, migrations: Migrations): OpenDatabase {
  const { host, port, name, user, password, poolSize: connections } = settings;
  const client = preparing(connect(settings, { user, password, connections, statementTimeoutMs }));
  const db = drizzle({ client });
  return {
    db,
    description: `PostgreSQL at ${host}:${port}/${name}`,
    migrate: () => migrateAsOwner(settings, migrations),
    isMigrated: () => isMigrated(db, migrations),
    close: () => client.end({ timeout: timeoutSeconds }),
  };
}

async function migrateAsOwner(settings: PostgresSettings, migrations: Migrations): Promise<void> {
  const { migrationUser: owner, migrationPassword: password } = settings;
  const client = connect(settings, { user: owner, password, connections: 1, statementTimeoutMs: 0 });
  try {
    const db = drizzle({ client });
    await db.execute(sql`select pg_advisory_lock(${migrationLock})`);
    await migrate(db, migrationConfig(migrations));
    const schema = sql.identifier(migrations.schema);
    const user = sql.identifier(settings.user);
    await db.execute(sql`grant usage on schema migrations, ${schema} to ${user}`);
    await db.execute(sql`grant select on all tables in schema migrations to ${user}`);
    await db.execute(sql`grant select, insert, update, delete on all tables in schema ${schema} to ${user}`);
    await db.execute(sql`grant usage on all sequences in schema ${schema} to ${user}`);
  } finally {
    await client.end({ timeout: timeoutSeconds });
  }
}
