/** What a language's folder gives to `npm run test:clients`: its toolchain and its checks. */

import type { Program } from "../support/program.ts";
import type { ClientServer, withDrainingServer } from "./server.ts";

/** The servers that a check talks to, and the documents that clients are generated from. */
export interface World {
  /** Such as `http://127.0.0.1:40123/api/auth`. */
  readonly authUrl: string;
  /** Such as `http://127.0.0.1:40123/api/push-orchestration`. */
  readonly pushUrl: string;
  /** Native gRPC in cleartext: host and port. */
  readonly grpcAddress: string;
  /** The OpenAPI documents as the server serves them, downloaded as files: `auth.yaml`, `auth.json`, `push.yaml`, `push.json`. */
  readonly documents: string;
  /** The protos, `proto/`. */
  readonly protos: string;
  /** The folder of this language: `test/clients/<language>`. */
  readonly sources: string;
  /** A folder for generated code and build results, kept between runs: `.data/clients/<language>`. Never committed. */
  readonly build: string;
  /**
   * Runs a program to its end. The environment has the addresses and credentials of `environmentOf` (main.ts) beside what
   * is inherited.
   * @param command the program, as PATH has it, and its arguments
   * @returns stdout
   * @throws with all of the output if it fails, or after the timeout (1,200 s unless another is named)
   */
  run(command: readonly [string, ...string[]], options?: RunOptions): Promise<string>;
  /** Starts a program that serves until its caller stops it, in the same folder and environment as `run`. */
  start(command: readonly [string, ...string[]], options?: Omit<RunOptions, "timeoutSeconds">): Program;
  /** Signs a token with the server's own key, which the server itself would never issue: an expired one, or another `typ`. */
  signToken: ClientServer["signToken"];
  readonly withDrainingServer: typeof withDrainingServer;
}

export interface RunOptions {
  /** The language's build folder, unless another is named. */
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly timeoutSeconds?: number;
}

/** One tool, seen from the outside: it reads our documents, or its code talks to our servers. */
export interface Check {
  /** The tool with its version, as the table shows it: `oapi-codegen 2.5.0`. */
  readonly tool: string;
  /** What is held: `generates, compiles with -Wall, walks through both services`. */
  readonly holds: string;
  /** Whether it belongs to the short form, which continuous integration runs. */
  readonly short: boolean;
  run(world: World): Promise<void>;
}

/** A language's checks; `test/clients/<language>/checks.ts` exports one as `language`. */
export interface Language {
  /** The name of its folder. */
  readonly name: string;
  /** Programs that must be on PATH, each with the page that says how to install it. */
  readonly toolchain: readonly ToolchainProgram[];
  /** Fetches what the checks need, such as a virtual environment. Quick if it is there already; repeated if it fails. */
  prepare?(world: World): Promise<void>;
  /** Run one after the other. */
  readonly checks: readonly Check[];
}

export interface ToolchainProgram {
  readonly name: string;
  readonly install: string;
}
