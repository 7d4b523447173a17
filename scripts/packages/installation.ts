/** A folder in which packages are installed, as users have them, and the programs that are run there. */
import { execFile } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { promisify } from "node:util";

const execute = promisify(execFile);

export interface Installation {
  readonly folder: string;
  write(file: string, text: string): void;
  install(...packages: readonly string[]): Promise<void>;
  /** @returns its stdout. @throws with all that it has written, if it fails */
  run(file: string, ...args: readonly string[]): Promise<string>;
}

export function createInstallation(folder: string): Installation {
  mkdirSync(folder, { recursive: true });
  const write = (file: string, text: string) => writeFileSync(join(folder, file), text);
  write("package.json", JSON.stringify({ name: "installation", private: true, type: "module" }));

  async function run(file: string, ...args: readonly string[]): Promise<string> {
    const PATH = [join(folder, "node_modules/.bin"), process.env["PATH"]].join(delimiter);
    const options = { cwd: folder, env: { ...process.env, PATH }, maxBuffer: 64 * 1024 * 1024 };
    const { stdout } = await execute(file, args, options).catch((cause) => {
      const { stdout, stderr }: { stdout?: string; stderr?: string } = cause;
      throw new Error(`${file} ${args.join(" ")} failed:\n${stdout || ""}\n${stderr || cause}`, { cause });
    });
    return stdout;
  }
  return {
    folder,
    write,
    run,
    async install(...packages) {
      await run("npm", "install", "--no-audit", "--no-fund", "--save-exact", "--loglevel=error", ...packages);
    },
  };
}
