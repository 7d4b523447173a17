/** Restarts every process of a cluster, one after the other, while a client that never tries again is served. */
import { Client } from "./client.ts";
import type { Cluster } from "./cluster.ts";
import { Journeys } from "./journey.ts";

/** Users at once. */
const users = 12;
/** So many failures say enough. */
const enoughFailures = 50;

/** A step of a round. */
export interface Step {
  /** Such as "with the version before". */
  readonly title: string;
  /** The folder of the version that each process gets. */
  readonly version: string;
  /** Is done before the first process gets it, in the first round alone. */
  readonly prepare?: () => Promise<void>;
}

interface Options {
  /** At least so many are made, and at least one round. */
  readonly requests: number;
  /** In each of them every process is restarted. */
  readonly round: readonly Step[];
  readonly say: (line: string) => void;
}

/** @returns whether no request failed; what was seen has been said */
export async function rollOut(
  { balancer, members }: Cluster,
  { requests, round, say }: Options,
): Promise<boolean> {
  const client = new Client(balancer.origin, balancer.grpc);
  const journeys = new Journeys(client);
  let operator = await journeys.newOperator();
  const isOver = () => journeys.requests >= requests || journeys.failed >= enoughFailures;
  const tell = (what: string) => {
    say(`${what}; ${journeys.requests} requests, ${journeys.failed} failed`);
    for (const [failure, count] of journeys.failures) say(`    ${count} × ${failure}`);
  };
  let restarts = 0;
  let isStopping = false;
  const serving = Array.from({ length: users }, async () => {
    while (!isStopping) await journeys.walk(operator);
  });
  try {
    do {
      for (const { title, version, prepare } of round) {
        // Its access token lasts for fifteen minutes.
        operator = await journeys.newOperator();
        if (restarts < members.length * round.length) await prepare?.();
        for (const member of members) {
          await member.restart(version);
          restarts += 1;
          tell(`${member.name} was restarted ${title}`);
        }
      }
    } while (!isOver());
  } finally {
    isStopping = true;
    await Promise.all(serving);
    client.close();
  }
  for (const [kind, count] of journeys.made) say(`${kind.padEnd(28)}${String(count).padStart(8)}`);
  for (const [what, count] of journeys.failures) say(`FAILED ${count} × ${what}`);
  say(`${restarts} restarts, ${journeys.requests} requests, ${journeys.failed} failed`);
  return journeys.failed === 0;
}
