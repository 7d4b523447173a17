/** What happens to processes: they are killed, and their clocks are wrong. */
import { setTimeout } from "node:timers/promises";
import { clockOf, whyNoWrongClock } from "../support/wrong-clock.ts";
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

const clocks: Fault = {
  name: "clocks",
  what: "the clock of one process is an hour ahead, of another an hour behind",
  short: false,
  concerns: "others",
  world: () => ({ servers: [{}, clockOf("+1h"), clockOf("-1h")] }),
  impossible: whyNoWrongClock,
  async play() {
    await setTimeout(20_000);
  },
};

export const processFaults: readonly Fault[] = [kill, clocks];
