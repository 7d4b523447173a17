/** Every program of the npm scripts says what it takes, and refuses what it does not know before it does anything. */
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { killAll, root, startProgram } from "./support/program.ts";
import { suiteCleanup } from "./support/suite-cleanup.ts";

const cleanup = suiteCleanup();
cleanup.defer(killAll);
const directory = mkdtempSync(join(tmpdir(), "gatepost-command-"));
cleanup.defer(() => rmSync(directory, { recursive: true, force: true }));
const dataDir = join(directory, "data");

const { scripts }: { scripts: Record<string, string> } = JSON.parse(
  readFileSync(join(root, "package.json"), "utf8"),
);
/** Those of others, and what npm runs by itself. */
const others = ["postinstall", "lint", "format", "typecheck", "test"];
/** What has the program of another script. */
const repeated = ["dev", "gen:check"];
const programs = Object.entries(scripts).filter(([name]) => ![...others, ...repeated].includes(name));

/** Measurements and suites, which load much: it is enough that their source reads arguments as the others do. */
const isMeasured = ([, script]: readonly [string, string]) => /^node test\/(?!cluster)/.test(script);

/** Runs a script's program as npm does. */
async function run(script: string, argument?: string, env: Record<string, string> = {}) {
  const words = script.replace(/^node /, "").split(" ");
  const args = argument === undefined ? words : [...words, argument];
  const program = startProgram([process.execPath, ...args], { DATA_DIR: dataDir, ...env });
  const code = await program.ended();
  return { code, stdout: program.stdout(), stderr: program.stderr() };
}

it("finds the programs of all scripts", () => {
  expect(programs.map(([, script]) => script).filter((script) => !/^node .+\.[jt]s$/.test(script))).toEqual(
    [],
  );
  expect(programs.length).toBeGreaterThan(25);
});

it.each(programs.filter(isMeasured))(
  "%s reads its arguments, and has its opening comment as usage",
  (name, script) => {
    const source = readFileSync(join(root, script.replace(/^node /, "")), "utf8");
    expect(source).toContain("readArguments({");
    expect(source).not.toContain("process.argv");
    expect(source).toMatch(new RegExp(`^/\\*\\*\\n \\* \`npm run ${name}\\b`));
  },
);

describe("each program", { concurrent: true, timeout: 120_000 }, () => {
  it("refuses an unknown argument, which it names, and does nothing", async () => {
    const waiting = programs.filter((one) => !isMeasured(one));
    const wrong: unknown[] = [];
    const next = async () => {
      for (let one = waiting.shift(); one; one = waiting.shift()) {
        const [name, script] = one;
        const { code, stdout, stderr } = await run(script, "--no-such");
        const isRight =
          stderr.startsWith("Unknown option '--no-such'. Nothing was done.") &&
          new RegExp(`: npm (run )?${name} -- --help\n$`).test(stderr);
        if (code !== 2 || stdout !== "" || !isRight) wrong.push({ name, code, stdout, stderr });
      }
    };
    await Promise.all(Array.from({ length: availableParallelism() }, next));
    expect(wrong).toEqual([]);
    expect(existsSync(dataDir)).toBe(false);
  });

  it.each([...programs.filter(([, script]) => script.includes("src/")), ["gen", scripts["gen"] ?? ""]])(
    "%s prints its usage with --help",
    async (name, script) => {
      const { code, stdout, stderr } = await run(script, "--help");
      expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
      expect(stdout).toMatch(new RegExp(`^Usage: npm (run )?${name}\\b`));
      expect(existsSync(dataDir)).toBe(false);
    },
  );
});

it.each([
  ["migrate", "npm_config_dry_run", "true"],
  ["migrate", "npm_config_status", "true"],
  ["hold", "npm_config_resume", "all"],
  ["fakes", "npm_config_fcm_port", "9400"],
])("refuses what npm has kept for itself, as %s has %s=%s", async (name, variable, value) => {
  const { code, stderr } = await run(scripts[name] ?? "", undefined, { [variable]: value });
  expect({ code, stderr }).toMatchObject({ code: 2, stderr: expect.stringContaining("for itself") });
  expect(existsSync(dataDir)).toBe(false);
});
