/** What a benchmark writes while it runs. */

export const print = (line: string) => process.stdout.write(`${line}\n`);

/** What is shown while something takes long, to who looks. */
export function showProgress(text: string): void {
  if (process.stdout.isTTY) process.stdout.write(`\r  ${text}\x1b[K${text === "" ? "\r" : ""}`);
}
