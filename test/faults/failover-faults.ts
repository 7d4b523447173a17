/** What happens to PostgreSQL on several hosts, all of which the servers know: another becomes the primary. */
import type { Fault } from "./fault.ts";
import { startPatroni, whyNoPatroni } from "./patroni.ts";
import { startPair } from "./replicated.ts";
import { postgresqlPrograms, serverSettings } from "./world.ts";

const failover: Fault = {
  name: "failover",
  what: "the primary is killed, its synchronous standby promoted, and the old primary comes back as it was",
  short: false,
  rounds: 10,
  concerns: "everybody",
  world: () => ({ replicated: () => startPair(postgresqlPrograms(), serverSettings) }),
  play: async ({ world }) => world.replicated?.failOver(),
  async settle({ world, ledger }) {
    ledger.wrong.push(...((await world.replicated?.settle(world.database)) ?? []));
  },
};

const cutOff: Fault = {
  ...failover,
  name: "cut-off",
  what: "the primary is cut off from its synchronous standby, which is promoted, and lives on within everybody's reach",
  rounds: 5,
  world: () => ({ replicated: () => startPair(postgresqlPrograms(), serverSettings, "cut off") }),
};

const patroni: Fault = {
  ...failover,
  name: "patroni",
  what: "the leader is killed with its Patroni, another is promoted, and the old one comes back, at first without Patroni",
  rounds: 3,
  impossible: whyNoPatroni,
  world: () => ({ replicated: () => startPatroni(postgresqlPrograms(), serverSettings) }),
};

export const failoverFaults: readonly Fault[] = [failover, cutOff, patroni];
