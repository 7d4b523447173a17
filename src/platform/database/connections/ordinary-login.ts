import type { Logger } from "pino";
import type { PostgresSettings } from "../settings.ts";
import type { Login } from "./client-options.ts";

type Settings = Pick<PostgresSettings, "user" | "password" | "rereadPassword">;

/** The ordinary user, whose password may be replaced while this process runs, if it was read from a file. */
export function ordinaryLogin({ user, password, rereadPassword }: Settings, logger?: Logger): Login {
  /** What is wrong with the file, so that it is logged once. */
  let problem: string | undefined;
  const login = { user, password, renew };

  /**
   * What cannot be read leaves things as they are. A password is not given up for a newer one until the server refuses
   * it: so the file may be changed first, and the server next.
   */
  function renew(refused: string): string | undefined {
    const found = rereadPassword?.();
    if (found && "problem" in found && found.problem !== problem)
      logger?.warn(`The database's password was refused, and cannot be read again: ${found.problem}`);
    problem = found && "problem" in found ? found.problem : undefined;
    if (found && "value" in found && found.value !== login.password) {
      login.password = found.value;
      logger?.info("The database's password was refused, and read again from its file");
    }
    return login.password === refused ? undefined : login.password;
  }
  return login;
}
