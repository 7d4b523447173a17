/** What happens to processes: they are killed, and their clocks are wrong. */
import { existsSync, globSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import type { Fault } from "./fault.ts";

const kill: Fault = {
  name: "kill-9",
  what: "processes are killed at random moments, one after the other, and started again",
  short: true,
  concerns: "others",
  async play({ world: { members }, isShort }) {
    const [, ...others] = members;
    for (let left = isShort ? 2 : 20; left > 0; left -= 1) {
      const victim = others[left % others.length];
      await setTimeout(Math.random() * 1_000);
      await victim?.process.kill();
      await victim?.restart();
    }
  },
};

/** Debian's libfaketime; undefined where it is not installed. */
const faketime = globSync("/usr/lib/*/faketime/libfaketime.so.1").find((path) => existsSync(path));

const clockOf = (offset: string) => ({
  LD_PRELOAD: faketime ?? "",
  FAKETIME: offset,
  // Time that passes is right; only what time it is, is not.
  FAKETIME_DONT_FAKE_MONOTONIC: "1",
});

const clocks: Fault = {
  name: "clocks",
  what: "the clock of one process is an hour ahead, of another an hour behind",
  short: false,
  concerns: "others",
  world: () => ({ servers: [{}, clockOf("+1h"), clockOf("-1h")] }),
  impossible: () =>
    faketime === undefined ? "faketime is not installed (Debian: apt-get install faketime)" : undefined,
  async play() {
    await setTimeout(20_000);
  },
};

export const processFaults: readonly Fault[] = [kill, clocks];
