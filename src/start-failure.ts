/** Reasons why a program could not start, for an operator. The functions return undefined for a defect. */
import { isDatabaseUnavailable, sqlState } from "./platform/base/database-errors.ts";
import { codeOf } from "./platform/base/error-code.ts";
import { DirectoryInUseError } from "./platform/database/directory-lock.ts";
import { MigrationBlockedError } from "./platform/database/migrations/migrations.ts";
import type { Settings } from "./services.ts";

/** Why the server could not start. */
export function startFailure(error: unknown, { server }: Settings): string | undefined {
  if (error instanceof DirectoryInUseError) return error.message;
  if (!(error instanceof Error) || !("code" in error)) return undefined;
  if (error.code === "EADDRNOTAVAIL") return `HOST is ${server.host}, which is no address of this machine.`;
  const port = "port" in error ? Number(error.port) : Number.NaN;
  const names = new Map([
    [server.port, "SERVER_PORT"],
    [server.grpcPort, "GRPC_PORT"],
    [server.managementPort, "MANAGEMENT_PORT"],
  ]);
  const name = names.get(port);
  if (name === undefined) return undefined;
  const instead = `set ${name} to another one, as in ${name}=${port + 10}`;
  if (error.code === "EADDRINUSE") return `Port ${port} is in use. Stop what listens there, or ${instead}.`;
  if (error.code === "EACCES") return `Port ${port} is not open to this user; ${instead}.`;
  return undefined;
}

/** Class 28: invalid user or password. Class 3D: unknown database. 42501: missing privileges. */
const settingStates = /^(28|3D|42501)/;

/** Why the database could not be used, and what to check: it is unavailable, or refuses the user. */
export function databaseFailure(error: unknown): string | undefined {
  if (error instanceof DirectoryInUseError || error instanceof MigrationBlockedError) return error.message;
  const state = sqlState(error) ?? "";
  if (!isDatabaseUnavailable(error) && !settingStates.test(state)) return undefined;
  const cause = innermost(error);
  const step = nextStep(state === "" ? (codeOf(cause) ?? "") : state);
  return `The database cannot be used: ${textOf(cause)}.${step === undefined ? "" : ` ${step}`}`;
}

/** The next steps for an operator, by SQLSTATE or by the code of a socket. */
const nextSteps: readonly (readonly [RegExp, string])[] = [
  [/^28/, "Check DB_USER and DB_PASSWORD, and for migrations DB_USER_MIGRATION and DB_PASSWORD_MIGRATION."],
  [/^08P01$/, "If a pooler is at DB_HOST, set DB_POOLER=transaction."],
  [/^3D/, "Check DB_NAME, or create the database."],
  [/^42501$/, "Check DB_USER and DB_USER_MIGRATION, and what the database grants them."],
  [/^(ENOTFOUND|EAI_AGAIN)$/, "Check DB_HOST."],
  [/^E(CONNREFUSED|HOSTUNREACH|NETUNREACH)$/, "Check that PostgreSQL runs there, DB_HOST and DB_PORT."],
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
