/** The time of day as a process sees it, moved by Debian's libfaketime. */
import { existsSync, globSync } from "node:fs";

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
