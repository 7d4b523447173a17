/** What the programs have in common: how they read their arguments, and how commands for operators end. */
import { type ParseArgsOptionsConfig, parseArgs } from "node:util";
import { exitBadSettings, SettingsError } from "./platform/settings/settings.ts";

interface Command<Options> {
  /** What `--help` prints: how the command is called, what it does and takes, and its exit codes. */
  readonly usage: string;
  readonly options: Options;
  /** The fewest and the most arguments that are no options; none unless given. */
  readonly operands?: readonly [fewest: number, most: number];
}

/** How the running command is called. */
let command = "";

/** The exit code of a command that got arguments which it does not take: it has done nothing. */
const exitBadArguments = 2;

/**
 * The arguments of this process. With `--help` it prints the usage and ends; with one that the command does not take,
 * or without one that it needs, it names that and ends with exit code 2.
 */
export function readArguments<const Options extends ParseArgsOptionsConfig>({
  usage,
  options,
  operands: [fewest, most] = [0, 0],
}: Command<Options>) {
  [command = ""] = /^npm (run )?[\w:-]*\w/.exec(usage) ?? [];
  const args = process.argv.slice(2);
  if (args.includes("--help") || args.includes("-h")) {
    process.stdout.write(`Usage: ${usage}\n`);
    process.exit(0);
  }
  const kept = args.length === 0 ? keptByNpm(options) : undefined;
  if (kept !== undefined) refuseArguments(`npm has kept ${kept} for itself: put -- before it.`);
  const read = parsed(args, options);
  const [surplus] = read.positionals.slice(most);
  if (surplus !== undefined) refuseArguments(`Unexpected argument '${surplus}'.`);
  if (read.positionals.length < fewest) refuseArguments("An argument is missing.");
  return read;
}

function parsed<const Options extends ParseArgsOptionsConfig>(args: string[], options: Options) {
  try {
    return parseArgs({ args, options, allowPositionals: true });
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    // Its first sentence says what is wrong; the next one is advice on dashes.
    return refuseArguments(`${error.message.split(". ")[0]?.replace(/\.?$/, ".")}`);
  }
}

/**
 * An option that npm has not passed on, as in `npm run migrate --status`, and that would change what is done. Settings of
 * npm itself that are off are "" or "false".
 */
function keptByNpm(options: ParseArgsOptionsConfig): string | undefined {
  const kept = [...Object.keys(options), "dry-run"].find(
    (name) => !["", "false"].includes(process.env[`npm_config_${name.replaceAll("-", "_")}`] ?? ""),
  );
  return kept && `--${kept}`;
}

/** Ends a command that cannot do anything with its arguments. @param reason a sentence that names what is wrong */
export function refuseArguments(reason: string): never {
  process.stderr.write(`${reason} Nothing was done. What it takes: ${command} -- --help\n`);
  process.exit(exitBadArguments);
}

/** Does a command's work. Bad settings, or a database that cannot be used, end it with a sentence and an exit code. */
export async function runCommand(work: () => Promise<void>): Promise<void> {
  // The deadlines of the database keep no process alive.
  const waiting = setInterval(() => undefined, 60_000);
  try {
    await work();
  } catch (error) {
    // Programs without a database, and those that have to prepare for it, load nothing of it for their arguments.
    const { databaseFailure } = await import("./platform/database/failure.ts");
    const reason = error instanceof SettingsError ? error.message : databaseFailure(error);
    if (reason === undefined) throw error;
    process.stderr.write(`${reason}\n`);
    process.exitCode = error instanceof SettingsError ? exitBadSettings : 1;
  } finally {
    clearInterval(waiting);
  }
}
