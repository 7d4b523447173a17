import type { Logger } from "pino";
import { databaseTrouble, isDatabaseUnavailable, sqlState } from "../base/database-errors.ts";
import { codeOf } from "../base/error-code.ts";
import { Outage } from "../base/outage.ts";
import { DirectoryInUseError } from "./directory-lock.ts";
import { ForeignHistoryError, MigrationBlockedError } from "./migrations/migrations.ts";

/** Class 28: invalid user or password. Class 3D: unknown database. 42501: missing privileges. */
const settingStates = /^(28|3D|42501)/;

/** Why the database could not be used, and what to check, for an operator; undefined for a defect. */
export function databaseFailure(error: unknown): string | undefined {
  if (error instanceof MigrationBlockedError) return error.message;
  if (error instanceof DirectoryInUseError || error instanceof ForeignHistoryError) return error.message;
  const state = sqlState(error) ?? "";
  if (!isDatabaseUnavailable(error) && !settingStates.test(state)) return undefined;
  const cause = innermost(error);
  const step = nextStep(state === "" ? (codeOf(cause) ?? "") : state);
  const what = databaseTrouble(error) ?? "The database cannot be used";
  return `${what}: ${textOf(cause)}.${step === undefined ? "" : ` ${step}`}`;
}

/** The next steps for an operator, by SQLSTATE or by the code of a socket. */
const nextSteps: readonly (readonly [RegExp, string])[] = [
  [/^28/, "Check DB_USER and DB_PASSWORD, and for migrations DB_USER_MIGRATION and DB_PASSWORD_MIGRATION."],
  [/^08P01$/, "If a pooler is at DB_HOST, set DB_POOLER=transaction."],
  [/^3D/, "Check DB_NAME, or create the database."],
  [/^42501$/, "Check DB_USER and DB_USER_MIGRATION, and what the database grants them."],
  [/^(ENOTFOUND|EAI_AGAIN)$/, "Check DB_HOST."],
  [/^53100$/, "Free or add room on the disk of PostgreSQL; what failed is tried again."],
  [/^53300$/, "Lower DB_POOL_SIZE, or raise max_connections."],
  [/^25006$/, "Check default_transaction_read_only of the database and of DB_USER."],
  [
    /^(E(CONNREFUSED|CONNRESET|HOSTUNREACH|NETUNREACH)|57P0[1-3]|CONNECTION_CLOSED)$/,
    "Check that PostgreSQL runs there, DB_HOST and DB_PORT.",
  ],
  [/^(E|CONNECT_TIMEOUT)/, "Check DB_HOST, DB_PORT and DB_SSL."],
];

function nextStep(code: string): string | undefined {
  return nextSteps.find(([codes]) => codes.test(code))?.[1];
}

/** The original error, which the driver and the query builder have wrapped. */
function innermost(error: unknown): unknown {
  if (!(error instanceof Error)) return error;
  if (error.cause !== undefined) return innermost(error.cause);
  // An AggregateError has one error for each address of a host name, and only those have a message.
  if (error instanceof AggregateError && error.errors.length > 0) return innermost(error.errors[0]);
  return error;
}

function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

const outages = new WeakMap<Logger, Map<string, Outage>>();

/** The outages of a database, as the log has them: one and the same for all who name this log and database. */
export function outagesOf(database: string, logger: Logger): Outage {
  const ofLog = outages.get(logger) ?? new Map<string, Outage>();
  outages.set(logger, ofLog);
  const log = (durationMs: number, error?: unknown) =>
    logger.warn({ database, durationMs }, error ? databaseFailure(error) : "The database is used again");
  const outage = ofLog.get(database) ?? new Outage(log);
  ofLog.set(database, outage);
  return outage;
}
