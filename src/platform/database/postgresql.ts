import { sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/postgres-js";
import { migrate } from "drizzle-orm/postgres-js/migrator";
import postgres from "postgres";
import { isReachable, type OpenDatabase } from "./database.ts";
import { isMigrated, type Migrations, migrationConfig } from "./migrations.ts";
import { RenewingPool } from "./renewing-pool.ts";
import type { DatabaseSettings } from "./settings.ts";
import { Transactions } from "./transactions.ts";

type PostgresSettings = Extract<DatabaseSettings, { kind: "postgres" }>;

/** Seconds that connecting, and closing, may take. */
const timeoutSeconds = 5;
/** Milliseconds that one statement of the ordinary user may take. */
const statementTimeoutMs = 5_000;
/** Any fixed number. A migrating process holds it as an advisory lock. */
const migrationLock = 7_214_033;

interface Login {
  readonly user: string;
  readonly password: string | undefined;
  readonly connections: number;
  /** 0: none. */
  readonly statementTimeoutMs: number;
  /** Called when a connection has closed. */
  readonly onClose?: () => void;
}

function connect({ host, port, name, ssl, sslCa }: PostgresSettings, login: Login) {
  const client = postgres({
    host,
    port,
    database: name,
    username: login.user,
    ...(login.password !== undefined && { password: login.password }),
    max: login.connections,
    ssl:
      ssl === "disable"
        ? false
        : {
            rejectUnauthorized: ssl === "verify-full" || sslCa !== undefined,
            ...(sslCa && { ca: sslCa }),
            // As in libpq: with a certificate authority, "require" checks the chain, but not the name.
            ...(ssl === "require" && { checkServerIdentity: () => undefined }),
          },
    connect_timeout: timeoutSeconds,
    // The driver's default backoff grows to 20 s, which is too long once the database is back.
    backoff: (retries: number) => Math.min(1, 0.05 * 2 ** retries),
    // Drizzle parses arrays by itself. And if the connection ends while the driver fetches the types, the driver
    // throws an error that cannot be caught.
    fetch_types: false,
    idle_timeout: 300,
    connection: {
      application_name: "gatepost",
      statement_timeout: login.statementTimeoutMs,
      // Our statements are short. If the planner overestimates their cost, JIT compilation takes longer than they do.
      jit: "off",
    },
    onnotice: () => undefined,
    ...(login.onClose && { onclose: login.onClose }),
  });
  // Drizzle sets the client's serializers and parsers, so every client has to be passed to it.
  return { client, db: drizzle({ client }) };
}

/** Concurrent transactions; each has a connection of its own besides those of the pool. */
const maxTransactions = 4;

/** Opens the database as the ordinary user. The first connection is made when it is needed. */
export function openPostgresql(settings: PostgresSettings, migrations: Migrations): OpenDatabase {
  const { host, port, name, user, password, poolSize } = settings;
  const open = (connections: number) => (onClose: () => void) =>
    connect(settings, { user, password, connections, statementTimeoutMs, onClose }).client;
  const pool = new RenewingPool(open(poolSize));
  const transactions = new Transactions(open(1), maxTransactions);
  // Scripts may begin a transaction, which the driver allows only in a pool of one connection.
  const scripts = new RenewingPool(open(1));
  // Drizzle's own client never connects: it passes statements to the pool, and transactions to their connections.
  const { client, db } = connect(settings, { user, password, connections: 1, statementTimeoutMs });
  // By default Drizzle does not prepare statements. Ours are few and fixed, so each is prepared once.
  client.unsafe = (query, parameters, options) =>
    pool.current.unsafe(query, parameters, { ...options, prepare: true });
  Object.defineProperty(client, "begin", { value: transactions.begin.bind(transactions) });
  return {
    db,
    description: `PostgreSQL at ${host}:${port}/${name}`,
    migrate: () => migrateAsOwner(settings, migrations),
    isMigrated: () => isMigrated(db, migrations),
    script: (text) => runScript(scripts.current, text),
    isReachable: () => isReachable(db),
    close: async () => {
      await Promise.all([pool.close(), scripts.close(), transactions.close(timeoutSeconds)]);
    },
  };
}

/** Without parameters the driver sends the text as it is; the result of several statements is a list of lists. */
async function runScript(client: postgres.Sql, text: string): Promise<Record<string, unknown>[]> {
  const results = await client.unsafe<Record<string, unknown>[]>(text).simple();
  return results.flat();
}

async function migrateAsOwner(settings: PostgresSettings, migrations: Migrations): Promise<void> {
  const { migrationUser: owner, migrationPassword: password } = settings;
  const { client, db } = connect(settings, { user: owner, password, connections: 1, statementTimeoutMs: 0 });
  try {
    await db.execute(sql`select pg_advisory_lock(${migrationLock})`);
    await migrate(db, migrationConfig(migrations));
    const libraries = migrations.librarySchemas ?? [];
    for (const library of libraries) {
      await library.migrate({ db, script: (text) => runScript(client, text) });
    }
    const user = sql.identifier(settings.user);
    await db.execute(sql`grant usage on schema migrations to ${user}`);
    await db.execute(sql`grant select on all tables in schema migrations to ${user}`);
    for (const name of [migrations.schema, ...libraries.map(({ schema }) => schema)]) {
      const schema = sql.identifier(name);
      await db.execute(sql`grant usage on schema ${schema} to ${user}`);
      await db.execute(
        sql`grant select, insert, update, delete on all tables in schema ${schema} to ${user}`,
      );
      await db.execute(sql`grant usage on all sequences in schema ${schema} to ${user}`);
    }
  } finally {
    await client.end({ timeout: timeoutSeconds });
  }
}
