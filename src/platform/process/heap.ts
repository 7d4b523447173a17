/**
 * The size of V8's heap. V8 reads it once, when Node starts, so a program that reads it from its settings has
 * to start again: it replaces itself (execve: same process id, same streams).
 */

/** MiB; undefined: as Node was started. */
export interface HeapSettings {
  readonly memoryMinMb: number | undefined;
  readonly memoryMaxMb: number | undefined;
}

/** The settings as flags of `node`. */
function heapFlags({ memoryMinMb, memoryMaxMb }: HeapSettings): string[] {
  const flags: string[] = [];
  if (memoryMinMb !== undefined) flags.push(`--initial-old-space-size=${memoryMinMb}`);
  if (memoryMaxMb !== undefined) flags.push(`--max-old-space-size=${memoryMaxMb}`);
  return flags;
}

/** Starts the program again with the heap of its settings. Returns if the heap has that size already. */
export function restartWithHeap(settings: HeapSettings, env: NodeJS.ProcessEnv): void {
  const missing = heapFlags(settings).filter((flag) => !process.execArgv.includes(flag));
  if (missing.length === 0 || process.execve === undefined) return;
  const [node = process.execPath, ...program] = process.argv;
  process.execve(node, [node, ...process.execArgv, ...missing, ...program], env);
}
