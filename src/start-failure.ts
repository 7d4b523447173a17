import { DirectoryInUseError } from "./platform/database/directory-lock.ts";
import { ForeignHistoryError } from "./platform/database/migrations/migrations.ts";
import type { Settings } from "./services.ts";

/** Why the server could not start, for an operator; undefined for a defect. */
export function startFailure(error: unknown, { server }: Settings): string | undefined {
  if (error instanceof DirectoryInUseError || error instanceof ForeignHistoryError) return error.message;
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
