/**
 * `npm run test:clients [-- <language>…] [-- --short]`: clients of other languages, made from the documents by the
 * generators that people use, against the running server. Each language has a folder with its toolchain's own files
 * and versions; `checks.ts` in it says what is checked. `--short` runs what continuous integration runs.
 *
 * Languages run side by side, each against a server of its own: one computes while another waits for its registry, and
 * none sees what another has left, such as the attempts that count against a client.
 *
 * A language whose toolchain is missing is left out and named; where `CI` is set it has failed. The last line is
 * `N passed, N failed`.
 */
import { execFile } from "node:child_process";
import { existsSync, globSync, mkdirSync } from "node:fs";
import { availableParallelism } from "node:os";
import { basename, delimiter, dirname, join } from "node:path";
import { performance } from "node:perf_hooks";
import { setTimeout } from "node:timers/promises";
import { promisify } from "node:util";
import { ROOT, say, usageIn } from "../../scripts/command.ts";
import { readArguments, refuseArguments } from "../../src/command.ts";
import { killAll, startProgram } from "../support/program.ts";
import type { Check, Language, RunOptions, World } from "./language.ts";
import { type ClientServer, startClientServer, withDrainingServer } from "./server.ts";

const CLIENTS = import.meta.dirname;

/** More at once would keep the servers that they talk to from answering in time. */
const AT_ONCE = availableParallelism();

/** Registries do not answer at times. A preparation that is repeated goes on where it was: caches keep what has come. */
const PREPARATION_TRIES = 3;
const PAUSE_MS = 5_000;

/**
 * "Come again" is an answer (503), which a service gives where the machine is too busy. A walk through it does not wait
 * and repeat a call, as its code is there to be read; so a check during which the server has said so is repeated whole.
 */
const CHECK_TRIES = 3;
const execute = promisify(execFile);

interface Result {
  readonly language: string;
  readonly tool: string;
  readonly holds: string;
  readonly seconds: number;
  /** What went wrong, with the tool's output. */
  readonly failure?: string;
}

/** The addresses and credentials, as a client program reads them from its environment. */
function environmentOf(server: ClientServer): Record<string, string> {
  return {
    GATEPOST_ISSUER: server.authUrl,
    GATEPOST_AUTH_URL: server.authUrl,
    GATEPOST_PUSH_URL: server.pushUrl,
    GATEPOST_GRPC: server.grpcAddress,
    GATEPOST_INTERNAL_SECRET: "internal-dev-secret",
    GATEPOST_BACKEND_SECRET: "backend-dev-secret",
    GATEPOST_API_SECRET: "api-dev-secret",
    GATEPOST_BACKOFFICE_SECRET: "backoffice-dev-secret",
  };
}

function createWorld(server: ClientServer, language: string): World {
  const build = join(ROOT, ".data", "clients", language);
  mkdirSync(build, { recursive: true });
  const environment = {
    ...process.env,
    PATH: [join(ROOT, "node_modules", ".bin"), process.env["PATH"]].join(delimiter),
    ...environmentOf(server),
  };
  return {
    authUrl: server.authUrl,
    pushUrl: server.pushUrl,
    grpcAddress: server.grpcAddress,
    documents: server.documents,
    protos: join(ROOT, "proto"),
    sources: join(CLIENTS, language),
    build,
    async run([program, ...args], { cwd = build, env, timeoutSeconds = 1_200 }: RunOptions = {}) {
      try {
        // Compilers give way to the servers that are talked to.
        const { stdout } = await execute("nice", [program, ...args], {
          cwd,
          env: { ...environment, ...env },
          timeout: timeoutSeconds * 1000,
          maxBuffer: 64 * 1024 * 1024,
        });
        return stdout;
      } catch (error) {
        throw new Error(describeFailure([program, ...args].join(" "), error), { cause: error });
      }
    },
    start: (command, { cwd = build, env } = {}) => startProgram(command, { ...environment, ...env }, cwd),
    signToken: server.signToken,
    withDrainingServer,
  };
}

/** The end of what the program wrote is where its complaint is. */
function describeFailure(command: string, error: unknown): string {
  const { stdout = "", stderr = "" } = error as { stdout?: string; stderr?: string };
  const output = `${stdout}\n${stderr}`.trim();
  return `${command} failed:\n${output === "" ? String(error) : output.slice(-8_000)}`;
}

async function isInstalled(program: string): Promise<boolean> {
  return execute("which", [program]).then(
    () => true,
    () => false,
  );
}

async function timed(
  language: string,
  check: Pick<Check, "tool" | "holds">,
  work: () => Promise<void>,
): Promise<Result> {
  const start = performance.now();
  const failure = await work().then(
    () => undefined,
    (error: unknown) => (error instanceof Error ? error.message : String(error)),
  );
  const seconds = (performance.now() - start) / 1000;
  say(`${failure === undefined ? "ok    " : "FAILED"} ${language}: ${check.tool} (${seconds.toFixed(1)} s)`);
  if (failure !== undefined) say(failure);
  const { tool, holds } = check;
  return { language, tool, holds, seconds, ...(failure !== undefined && { failure }) };
}

async function prepare(language: Language, world: World): Promise<void> {
  for (let tries = 1; ; tries++) {
    try {
      return await language.prepare?.(world);
    } catch (error) {
      if (tries === PREPARATION_TRIES) throw error;
      say(`again  ${language.name}: preparation, as try ${tries} has failed: ${String(error).slice(0, 500)}`);
      await setTimeout(PAUSE_MS * tries);
    }
  }
}

async function runCheck(language: Language, check: Check, world: World, server: ClientServer): Promise<void> {
  for (let tries = 1; ; tries++) {
    const before = await server.unavailable();
    try {
      return await check.run(world);
    } catch (error) {
      const count = (await server.unavailable().catch(() => before)) - before;
      if (tries === CHECK_TRIES || count === 0) throw error;
      say(`again  ${language.name}: ${check.tool}, as the server was unavailable to ${count} of its calls`);
      await setTimeout(PAUSE_MS * tries);
    }
  }
}

/** Runs a language's checks one after the other, unless its preparation fails. */
async function checkLanguage(language: Language, checks: readonly Check[]): Promise<Result[]> {
  const server = await startClientServer();
  try {
    const world = createWorld(server, language.name);
    const results: Result[] = [];
    if (language.prepare) {
      const setUp = { tool: "preparation", holds: "what the checks need is installed" };
      const prepared = await timed(language.name, setUp, () => prepare(language, world));
      results.push(prepared);
      if (prepared.failure !== undefined) return results;
    }
    for (const check of checks) {
      results.push(await timed(language.name, check, () => runCheck(language, check, world, server)));
    }
    return results;
  } finally {
    await server.stop();
  }
}

/** The programs of its toolchain that are not on PATH, in words. */
async function absentPrograms({ toolchain }: Language): Promise<string[]> {
  const absent: string[] = [];
  for (const { name, install } of toolchain) {
    if (!(await isInstalled(name))) absent.push(`${name} (${install})`);
  }
  return absent;
}

/** Languages end in any order; the checks of one stay in theirs. */
function showTable(unordered: readonly Result[]): void {
  const results = unordered.toSorted((a, b) => a.language.localeCompare(b.language));
  const width = (of: (result: Result) => string) => Math.max(...results.map((result) => of(result).length));
  const [languages, tools] = [width(({ language }) => language), width(({ tool }) => tool)];
  say();
  for (const { language, tool, holds, seconds, failure } of results) {
    const time = `${seconds.toFixed(0)} s`.padStart(6);
    const outcome = failure === undefined ? holds : "FAILED";
    say(`${language.padEnd(languages)}  ${tool.padEnd(tools)}  ${time}  ${outcome}`);
  }
}

const { values, positionals: wanted } = readArguments({
  usage: usageIn(import.meta.filename),
  options: { short: { type: "boolean", default: false } },
  operands: [0, Number.POSITIVE_INFINITY],
});
const { short } = values;
const known = globSync("*/checks.ts", { cwd: CLIENTS })
  .map((file) => basename(dirname(file)))
  .sort();
const unknown = wanted.find((name) => !existsSync(join(CLIENTS, name, "checks.ts")));
if (unknown !== undefined) refuseArguments(`There is no language ${unknown}; there are ${known.join(", ")}.`);

const results: Result[] = [];
const missing: string[] = [];
const waiting = wanted.length > 0 ? [...wanted] : known;

async function checkNext(): Promise<void> {
  for (let name = waiting.shift(); name !== undefined; name = waiting.shift()) {
    const { language }: { language: Language } = await import(`./${name}/checks.ts`);
    const checks = language.checks.filter((check) => check.short || !short);
    const absent = await absentPrograms(language);
    if (absent.length > 0) missing.push(`${name} needs ${absent.join(" and ")}`);
    else if (checks.length > 0) results.push(...(await checkLanguage(language, checks)));
  }
}

try {
  await Promise.all(Array.from({ length: AT_ONCE }, checkNext));
} finally {
  killAll();
}

if (results.length > 0) showTable(results);
for (const line of missing) say(`Left out: ${line}.`);
const ofCi = process.env["CI"] ? missing.length : 0;
const failures = results.filter(({ failure }) => failure !== undefined).length + ofCi;
say(`${results.length - (failures - ofCi)} passed, ${failures} failed`);
if (failures > 0) process.exitCode = 1;
