/** Flags of V8, read when Node starts: a program that wants others replaces itself (execve). */

/** Half the default's young generation, and no guesses about long-lived objects: below 384 MiB at the same speed. */
export const startFlags = ["--max-semi-space-size=16", "--no-allocation-site-pretenuring"] as const;

/** MiB; undefined: as Node was started. */
interface HeapSettings {
  readonly memoryMinMb: number | undefined;
  readonly memoryMaxMb: number | undefined;
}

/** The settings as flags of `node`. */
export function heapFlags({ memoryMinMb, memoryMaxMb }: HeapSettings): string[] {
  const flags: string[] = [];
  if (memoryMinMb !== undefined) flags.push(`--initial-old-space-size=${memoryMinMb}`);
  if (memoryMaxMb !== undefined) flags.push(`--max-old-space-size=${memoryMaxMb}`);
  return flags;
}

/** The flags that Node was not given already, with any value, on its command line or in NODE_OPTIONS. */
export function unlessGiven(flags: readonly string[], env: NodeJS.ProcessEnv): string[] {
  const given = [...process.execArgv, ...(env["NODE_OPTIONS"] ?? "").split(/\s+/)].map(nameOf);
  return flags.filter((flag) => !given.includes(nameOf(flag)));
}

/** V8 takes a dash for an underscore, and `--no-x` for the opposite of `--x`. */
function nameOf(flag: string): string {
  return flag
    .replaceAll("_", "-")
    .replace(/^--(no-?)?/, "")
    .replace(/=.*/s, "");
}

/** Starts the program again with these flags. Returns if it has them already, and on Windows. */
export function restartWith(flags: readonly string[], env: NodeJS.ProcessEnv): void {
  const missing = flags.filter((flag) => !process.execArgv.includes(flag));
  if (missing.length === 0 || process.execve === undefined || process.platform === "win32") return;
  const [node = process.execPath, ...program] = process.argv;
  process.execve(node, [node, ...process.execArgv, ...missing, ...program], env);
}
