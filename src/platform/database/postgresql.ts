import { sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/postgres-js";
import { migrate } from "drizzle-orm/postgres-js/migrator";
import postgres from "postgres";
import { answers, type OpenDatabase } from "./database.ts";
import { isMigrated, type Migrations, migrationConfig } from "./migrations.ts";
import { RenewingPool } from "./renewing-pool.ts";
import type { DatabaseSettings } from "./settings.ts";
import { Transactions } from "./transactions.ts";

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
  /** Called when a connection has gone. */
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
            // As libpq has it: with a certificate authority, "require" checks the chain, and not the name.
            ...(ssl === "require" && { checkServerIdentity: () => undefined }),
          },
    connect_timeout: timeoutSeconds,
    // The driver's own grows to 20 s: too long to stay away from a database that is back.
    backoff: (retries: number) => Math.min(1, 0.05 * 2 ** retries),
    // Drizzle reads arrays by itself; and where the connection ends while the driver fetches the types, it throws
    // where nobody can catch it.
    fetch_types: false,
    idle_timeout: 300,
    connection: {
      application_name: "gatepost",
      statement_timeout: login.statementTimeoutMs,
      // Our statements are short. Where their cost is overrated, compiling them takes longer than running them.
      jit: "off",
    },
    onnotice: () => undefined,
    ...(login.onClose && { onclose: login.onClose }),
  });
  // Drizzle tells the client how values are written and read, so every client has to pass through it.
  return { client, db: drizzle({ client }) };
}

/** Transactions at once; each has a connection beside those of the pool. */
const maxTransactions = 4;

/** Connections as the ordinary user; the first is made when it is needed. */
export function openPostgresql(settings: PostgresSettings, migrations: Migrations): OpenDatabase {
  const { host, port, name, user, password, poolSize } = settings;
  const open = (connections: number) => (onClose: () => void) =>
    connect(settings, { user, password, connections, statementTimeoutMs, onClose }).client;
  const pool = new RenewingPool(open(poolSize));
  const transactions = new Transactions(open(1), maxTransactions);
  // Scripts may begin a transaction, which the driver lets nobody do by hand on more than one connection.
  const scripts = new RenewingPool(open(1));
  // What Drizzle holds never connects itself: it hands statements to the pool, and transactions to theirs.
  const { client, db } = connect(settings, { user, password, connections: 1, statementTimeoutMs });
  // Drizzle asks for statements that are not prepared. Ours are few and fixed, so each is planned once.
  client.unsafe = (query, parameters, options) =>
    pool.current.unsafe(query, parameters, { ...options, prepare: true });
  Object.defineProperty(client, "begin", { value: transactions.begin.bind(transactions) });
  return {
    db,
    description: `PostgreSQL at ${host}:${port}/${name}`,
    migrate: () => migrateAsOwner(settings, migrations),
    isMigrated: () => isMigrated(db, migrations),
    script: (text) => runScript(scripts.current, text),
    answers: () => answers(db),
    close: async () => {
      await Promise.all([pool.close(), scripts.close(), transactions.close(timeoutSeconds)]);
    },
  };
}

/** Without parameters the driver sends the text as it is; the answer to several statements is a list of lists. */
async function runScript(client: postgres.Sql, text: string): Promise<Record<string, unknown>[]> {
  const answer = await client.unsafe<Record<string, unknown>[]>(text).simple();
  return answer.flat();
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
