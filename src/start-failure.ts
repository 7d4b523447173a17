/** Why a program could not start, for a person who can do something about it. Each is undefined for a defect. */
import { isDatabaseUnavailable, sqlState } from "./platform/base/database-errors.ts";
import { DirectoryInUseError } from "./platform/database/directory-lock.ts";
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

/** Class 28 is about the user and the password, 3D about the database's name, 42501 about rights. */
const settingStates = /^(28|3D|42501)/;

/** Why the database could not be used: it is away, or does not know who asks. */
export function databaseFailure(error: unknown): string | undefined {
  if (error instanceof DirectoryInUseError) return error.message;
  if (!isDatabaseUnavailable(error) && !settingStates.test(sqlState(error) ?? "")) return undefined;
  return `The database cannot be used: ${innermost(error)}.`;
}

function innermost(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (error.cause !== undefined) return innermost(error.cause);
  // One error for each address of a name; they have the message.
  if (error instanceof AggregateError && error.errors.length > 0) return innermost(error.errors[0]);
  return error.message;
}
