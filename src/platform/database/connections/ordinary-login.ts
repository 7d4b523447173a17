import type { Logger } from "pino";
import type { PostgresSettings } from "../settings.ts";
import type { Login } from "./client-options.ts";

/** The ordinary user, whose password may be replaced while this process runs, if it was read from a file. */
export class OrdinaryLogin implements Login {
  readonly user: string;
  readonly #reread: PostgresSettings["rereadPassword"];
  readonly #logger: Logger | undefined;
  #password: string | undefined;
  /** What is wrong with the file, so that it is logged once. */
  #problem: string | undefined;

  constructor(settings: Pick<PostgresSettings, "user" | "password" | "rereadPassword">, logger?: Logger) {
    this.user = settings.user;
    this.#password = settings.password;
    this.#reread = settings.rereadPassword;
    this.#logger = logger;
  }

  get password(): string | undefined {
    return this.#password;
  }

  /**
   * Reads the file again, as the server has refused a password. What cannot be read leaves things as they are. Until the
   * server refuses it, a password is not given up for a newer one: so the file may be changed first, and the server next.
   */
  renew(refused: string): string | undefined {
    if (!this.#reread) return undefined;
    const found = this.#reread();
    const problem = "problem" in found ? found.problem : undefined;
    if (problem !== undefined && problem !== this.#problem)
      this.#logger?.warn(`The database's password was refused, and cannot be read again: ${problem}`);
    this.#problem = problem;
    if ("value" in found && found.value !== this.#password) {
      this.#password = found.value;
      this.#logger?.info("The database's password was refused, and read again from its file");
    }
    return this.#password === refused ? undefined : this.#password;
  }
}
