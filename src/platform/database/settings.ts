/** Settings of a service's database: embedded, or PostgreSQL with two users, one for rows and one for the schema. */
import { join } from "node:path";
import type { EnvironmentVariables } from "../settings/environment.ts";
import {
  fixedPort,
  type HostAndPort,
  hostAndPort,
  integer,
  listOf,
  matching,
  oneOf,
  password,
} from "../settings/kinds.ts";
import { certificatesPem } from "../settings/pem.ts";
import {
  type Reading,
  type ReadOptions,
  type Reread,
  rereadFrom,
  resolveSettings,
  type SettingsTable,
  type SettingValues,
  servicePrefix,
} from "../settings/settings.ts";

/** The task under which the migration user's settings are required in production. */
export const migrateTask = "migrate";

const identifier = matching("1 to 63 characters, none of them a control character", /^\P{Cc}{1,63}$/u);

const hosts = listOf(hostAndPort, "a host or a comma-separated list of hosts, with or without a port");

export const databaseTable = {
  DB_HOST: {
    description:
      "PostgreSQL's host, or a comma-separated list of a primary and its standbys: the current primary is used " +
      "(docs/operate/failover.md). A host without a port gets DB_PORT. If unset, development mode uses an embedded " +
      "database.",
    kind: hosts,
    required: true,
    example: "postgres.internal",
  },
  DB_PORT: { description: "The port of PostgreSQL.", kind: fixedPort, default: "5432" },
  DB_READ_HOSTS: {
    description:
      "Standbys that look-ups may be read from, as strictly as from DB_HOST, with their ports unless those are DB_PORT; with " +
      "`none` as without the setting, where that of one service is to be overridden: docs/operate/standbys.md.",
    kind: listOf(hostAndPort, "a comma-separated list of hosts, with or without a port, or none"),
    example: "standby-1.internal,standby-2.internal:5433",
  },
  DB_NAME: {
    description: "The name of the database.",
    kind: identifier,
    development: "gatepost",
    required: true,
    example: "gatepost",
  },
  DB_USER: {
    description:
      "The ordinary user, who reads and writes rows; in production no superuser, and no owner of tables.",
    kind: identifier,
    development: "gatepost",
    required: true,
    example: "gatepost",
  },
  DB_PASSWORD: {
    description: "The ordinary user's password. In a file it is read again when the server refuses it.",
    kind: password,
    secret: true,
    required: true,
    exampleFile: "db-password",
  },
  DB_SSL: {
    description:
      "Whether connections are encrypted, and whether the server's certificate and name are checked.",
    kind: oneOf(["disable", "require", "verify-full"]),
    development: "disable",
    production: "require",
    example: "verify-full",
  },
  DB_SSL_CA: {
    description:
      "The authorities that may have signed the database's certificate; those of Node.js unless set.",
    kind: certificatesPem,
    exampleFile: "db-ca.pem",
  },
  DB_POOLER: {
    description:
      "A pooler at DB_HOST that gives each transaction another connection, such as PgBouncer in transaction mode: " +
      "statements are not prepared, and sessions get no settings. Migrations go around it.",
    kind: oneOf(["none", "transaction"]),
    default: "none",
  },
  DB_POOL_SIZE: {
    description:
      "How many connections a process, and so each worker, holds at most, for each service; while it migrates, it has one more.",
    kind: integer(2, 1000),
    default: "10",
  },
} as const satisfies SettingsTable;

/** The user that migrates; read after {@link databaseTable}, whose user it is unless set in development. */
export const migrationTable = {
  DB_HOST_MIGRATION: {
    description:
      "The host or hosts of PostgreSQL for migrations, where DB_HOST is a pooler's; DB_HOST unless set.",
    kind: hosts,
    example: "postgres.internal",
  },
  DB_PORT_MIGRATION: {
    description: "The port of PostgreSQL for migrations; DB_PORT unless set.",
    kind: fixedPort,
    example: "5432",
  },
  DB_USER_MIGRATION: {
    description: "The user that owns the schema and runs migrations.",
    kind: identifier,
    development: "<DB_USER>",
    production: "gatepost_migration",
    required: migrateTask,
  },
  DB_PASSWORD_MIGRATION: {
    description: "The migration user's password.",
    kind: password,
    secret: true,
    development: "<DB_PASSWORD>",
    required: migrateTask,
    exampleFile: "db-password-migration",
  },
} as const satisfies SettingsTable;

export interface Address {
  readonly host: string;
  readonly port: number;
}

export type DatabaseSettings =
  | {
      readonly kind: "embedded";
      /** Directory of the embedded database, which all services of the process share: `<DATA_DIR>/database`. */
      readonly dataDir: string;
    }
  | PostgresSettings;

export interface PostgresSettings extends ReturnType<typeof postgresOf> {
  /** Reads the ordinary user's password again; undefined where it is in no file. */
  readonly rereadPassword?: () => Reread<string>;
}

export interface DatabaseReadOptions extends Pick<ReadOptions, "environment"> {
  /** The service that the database belongs to, as in "auth": settings prefixed `AUTH_` override the plain ones. */
  readonly service: string;
  /** `DATA_DIR` of the server's settings. */
  readonly dataDir: string;
  /** {@link migrateTask} if migrations are run: production then requires the migration user. */
  readonly task?: typeof migrateTask;
}

/** Reads a service's database settings; returns problems instead of throwing them. */
export function resolveDatabaseSettings(
  env: EnvironmentVariables,
  options: DatabaseReadOptions,
): Reading<DatabaseSettings> {
  const { service, dataDir, ...reading } = options;
  const prefixed: ReadOptions = { ...reading, prefix: servicePrefix(service) };
  const ordinary = resolveSettings(databaseTable, env, prefixed);
  const migration = resolveSettings(migrationTable, env, {
    ...prefixed,
    placeholders: {
      DB_USER: () => ordinary.value?.DB_USER,
      DB_PASSWORD: () => ordinary.value?.DB_PASSWORD,
    },
  });
  const problems = [...ordinary.problems, ...migration.problems];
  const { DB_USER: user } = ordinary.valid;
  if (reading.environment === "production" && reading.task === migrateTask && user !== undefined) {
    if (migration.valid.DB_USER_MIGRATION === user) {
      const what = `is ${user}, as is DB_USER; production has a second user, who only reads and writes rows`;
      problems.push(migration.problem("DB_USER_MIGRATION", what));
    }
  }
  if (ordinary.value === undefined || migration.value === undefined) return { value: undefined, problems };
  const settings = { ...ordinary.value, ...migration.value };
  if (settings.DB_HOST === undefined) {
    return { value: { kind: "embedded", dataDir: join(dataDir, "database") }, problems };
  }
  const { DB_PASSWORD } = databaseTable;
  const rereadPassword = () => {
    const again = resolveSettings({ DB_PASSWORD }, env, prefixed);
    return rereadFrom({ ...again, value: again.value?.DB_PASSWORD });
  };
  const value = {
    ...postgresOf({ ...settings, DB_HOST: settings.DB_HOST }),
    ...(ordinary.isRereadable("DB_PASSWORD") && { rereadPassword }),
  };
  return { value, problems };
}

type PostgresValues = SettingValues<typeof databaseTable> &
  SettingValues<typeof migrationTable> & { readonly DB_HOST: readonly HostAndPort[] };

function postgresOf(settings: PostgresValues) {
  return {
    kind: "postgres" as const,
    /** One host, or several of which one is the primary. */
    hosts: addresses(settings.DB_HOST, settings.DB_PORT),
    /** Standbys that may be read from; undefined if this process reads from none. */
    readHosts: settings.DB_READ_HOSTS && readHosts(settings.DB_READ_HOSTS, settings.DB_PORT),
    name: settings.DB_NAME,
    user: settings.DB_USER,
    /** Undefined only in development: the server needs no password. */
    password: settings.DB_PASSWORD,
    migrationHosts: addresses(
      settings.DB_HOST_MIGRATION ?? settings.DB_HOST,
      settings.DB_PORT_MIGRATION ?? settings.DB_PORT,
    ),
    migrationUser: settings.DB_USER_MIGRATION,
    /** Undefined in development if there is none, in production except in the migrate task. */
    migrationPassword: settings.DB_PASSWORD_MIGRATION,
    ssl: settings.DB_SSL,
    sslCa: settings.DB_SSL_CA,
    pooler: settings.DB_POOLER,
    poolSize: settings.DB_POOL_SIZE,
  };
}

/** Each address once; undefined for the word `none`. @param port of hosts without one */
function readHosts(named: readonly HostAndPort[], port: number): readonly Address[] | undefined {
  const [first] = named;
  if (named.length === 1 && first?.host === "none" && first.port === undefined) return undefined;
  return addresses(named, port);
}

/** Each address once. @param port of hosts without one */
function addresses(named: readonly HostAndPort[], port: number): readonly Address[] {
  const all = named.map((one) => ({ host: one.host, port: one.port ?? port }));
  return [...new Map(all.map((one) => [`${one.host}:${one.port}`, one])).values()];
}
