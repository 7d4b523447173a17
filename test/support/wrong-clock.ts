/** The time of day as a process sees it, moved by Debian's libfaketime. */
import { chmodSync, existsSync, globSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const faketime = globSync("/usr/lib/*/faketime/libfaketime.so.1").find((path) => existsSync(path));

/** The library that moves the clock of a process; undefined where this machine has none. */
export const findFaketime = () => faketime;

/** Why no process can have a wrong clock on this machine; undefined if one can. */
export const whyNoWrongClock = () =>
  faketime === undefined ? "faketime is not installed (Debian: apt-get install faketime)" : undefined;

/** The environment of a process whose clock is wrong. @param offset as `+1h` */
export const clockOf = (offset: string) => ({
  LD_PRELOAD: faketime ?? "",
  FAKETIME: offset,
  // Time that passes is right; only what time it is, is not.
  FAKETIME_DONT_FAKE_MONOTONIC: "1",
});

/** A clock of processes that is right until it is moved. */
export interface MovedClock extends Disposable {
  /** The environment of the processes. */
  readonly env: Readonly<Record<string, string>>;
  /** @param offset from the right time, as `+1h`; they have it from their next look on */
  move(offset: string): void;
}

export function movedClock(): MovedClock {
  const directory = mkdtempSync(join(tmpdir(), "gatepost-clock-"));
  // Whoever the processes run as.
  chmodSync(directory, 0o755);
  const file = join(directory, "offset");
  const move = (offset: string) => writeFileSync(file, `${offset}\n`);
  move("+0");
  const { FAKETIME: _, ...env } = clockOf("+0");
  return {
    env: { ...env, FAKETIME_TIMESTAMP_FILE: file, FAKETIME_NO_CACHE: "1" },
    move,
    [Symbol.dispose]: () => rmSync(directory, { recursive: true, force: true }),
  };
}
