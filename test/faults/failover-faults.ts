/** What happens to PostgreSQL on several hosts, all of which the servers know: another becomes the primary. */
import { setTimeout } from "node:timers/promises";
import { startNats } from "../support/nats.ts";
import { isReadBy, until } from "../support/postgresql/standby.ts";
import { haveActed, whyNoNats } from "./broker-faults.ts";
import { Caller, type Ending } from "./endings.ts";
import type { Fault, Scene } from "./fault.ts";
import { authorizationOf, HttpClient } from "./http-client.ts";
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

/** With settings without which no process reads from a standby. */
const readableSettings = [...serverSettings, "restart_after_crash=off"];

/** Kills the primary once all processes read from all of its standbys. */
async function failOverWhatIsRead({ world: { replicated, members } }: Scene): Promise<void> {
  if (!replicated) throw new Error("PostgreSQL is on one host");
  const primary = new URL(replicated.url).host;
  const standbys = replicated.hosts.split(",").filter((host) => host !== primary);
  await until("all processes read from all standbys", () =>
    members.every(({ process }) => standbys.every((standby) => isReadBy(process, standby))),
  );
  await replicated.failOver();
}

/** Introspection reads from the standby until that is promoted, and from the old primary once that is a standby. */
const failoverOfStandbys: Fault = {
  ...failover,
  name: "failover-standbys",
  what: "the same, where all processes read from the standby that is promoted",
  world: () => ({
    replicated: () => startPair(postgresqlPrograms(), readableSettings),
    readsReplicas: true,
  }),
  play: failOverWhatIsRead,
};

/** Identities that are deleted one after the other, from before the primary is killed until there is another one. */
const deletionCount = 60;
/** Milliseconds between two of these deletions, and until the primary is killed. */
const deletionEveryMs = 50;
const untilKilledMs = 1_500;

/** Events wait in the outbox while there is no primary, and arrive as soon as everything else goes on. */
function createWithBroker(): Fault {
  let deleted: Promise<unknown> = Promise.resolve();

  async function end({ ledger }: Scene, caller: Caller, { call, acknowledged }: Ending): Promise<void> {
    const { response } = await caller.ask(call);
    const id = call.path.split("/").at(-1) ?? "";
    if (acknowledged.includes(response.status))
      ledger.accounts.add({ id, password: undefined, chains: [], ending: "acknowledged" });
    else ledger.wrong.push(`a deletion: ${response.status} ${JSON.stringify(response.body)}`);
  }

  return {
    ...failover,
    name: "failover-broker",
    what: "the same, while identities are deleted, of which push learns over NATS",
    impossible: whyNoNats,
    world: () => ({
      replicated: () => startPair(postgresqlPrograms(), serverSettings),
      broker: async () => [await startNats()],
    }),
    async play(scene) {
      const http = new HttpClient();
      const caller = new Caller(scene.world, http);
      const endings = await Promise.all(
        Array.from({ length: deletionCount }, () => caller.newEnding("deletion of the identity")),
      );
      deleted = Promise.all(
        endings.map(async (ending, index) => {
          await setTimeout(index * deletionEveryMs);
          await end(scene, caller, ending);
        }),
      ).finally(() => http.close());
      await setTimeout(untilKilledMs);
      await scene.world.replicated?.failOver();
    },
    recovery: haveActed,
    async settle(scene) {
      await deleted;
      await failover.settle?.(scene);
    },
  };
}

/** Endings that are asked for while nobody confirms commits: two rounds of all ways. */
const endingCount = 20;
/** Milliseconds after the recovery within which all of them have been acknowledged. */
const patienceMs = 10_000;

/** What is refused while nobody confirms it is asked again, and acknowledged only once it holds. */
function createCutOff(): Fault {
  let ended: Promise<unknown> = Promise.resolve();

  /** Asks until it is acknowledged, and notes that down. */
  async function end({ ledger }: Scene, caller: Caller, ending: Ending): Promise<void> {
    const { way, token, call, acknowledged } = ending;
    if (way === "reuse of a refresh token") ledger.reused.add(authorizationOf(token));
    const { response, refused } = await caller.ask(call);
    if (acknowledged.includes(response.status)) ledger.revoked.add(token);
    else ledger.wrong.push(`${way}: ${response.status} ${JSON.stringify(response.body)}`);
    if (refused === 0) ledger.wrong.push(`a ${way} was acknowledged, and nobody had confirmed it`);
  }

  return {
    ...failover,
    name: "cut-off",
    what: "the primary is cut off from its synchronous standby, which is promoted, and lives on within everybody's reach",
    world: () => ({ replicated: () => startPair(postgresqlPrograms(), serverSettings, "cut off") }),
    async play(scene) {
      const http = new HttpClient();
      const caller = new Caller(scene.world, http);
      const endings = await Promise.all(
        Array.from({ length: endingCount }, (_, index) => caller.newEnding(index)),
      );
      await scene.world.replicated?.failOver(() => {
        ended = Promise.all(endings.map((ending) => end(scene, caller, ending))).finally(() => http.close());
      });
    },
    async settle(scene) {
      const late = setTimeout(patienceMs, "late", { ref: false });
      if ((await Promise.race([ended, late])) === "late")
        scene.ledger.wrong.push("an ending is still refused");
      await failover.settle?.(scene);
    },
  };
}

const patroni: Fault = {
  ...failover,
  name: "patroni",
  what: "the leader is killed with its Patroni, another is promoted, and the old one comes back, at first without Patroni",
  impossible: whyNoPatroni,
  world: () => ({ replicated: () => startPatroni(postgresqlPrograms(), serverSettings) }),
};

const patroniOfStandbys: Fault = {
  ...patroni,
  name: "patroni-standbys",
  what: `${patroni.what}; all processes read from both standbys`,
  world: () => ({
    replicated: () => startPatroni(postgresqlPrograms(), readableSettings),
    readsReplicas: true,
  }),
  play: failOverWhatIsRead,
};

export const failoverFaults: readonly Fault[] = [
  failover,
  failoverOfStandbys,
  createWithBroker(),
  createCutOff(),
  patroni,
  patroniOfStandbys,
];
