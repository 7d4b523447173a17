/** Hosts that a search asks, and what happens to connections to them. */
import { setTimeout as delay } from "node:timers/promises";
import { Connection, connectionLost } from "../../src/platform/database/connections/connection.ts";
import type { ReplicationState } from "../../src/platform/database/connections/replication-state.ts";
import { Primary } from "../../src/platform/database/failover/primary.ts";
import { Timelines } from "../../src/platform/database/failover/timelines.ts";
import type { Address } from "../../src/platform/database/settings.ts";
import { primary } from "./cluster-hosts.ts";

/** A promise is said slowly. */
export type Saying = ReplicationState | Error | Promise<ReplicationState | Error> | undefined;
/** Longer than a search waits for a host that does not matter. */
export const slowMs = 700;
export const silentMs = 1_000;
/** From the end of a search that did not wait for a slow host until after that has responded. */
export const afterLateMs = 300;

export const failed = (code: string) => Object.assign(new Error(`it failed with ${code}`), { code });
export const refused = Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" });
export const full = Object.assign(new Error("sorry, too many clients already"), { code: "53300" });
const lost = connectionLost("the connection has ended");
const late = connectionLost("the database did not respond in time");

/**
 * Hosts that say this, one question after the other; the last is repeated. Those that say undefined have said nothing
 * after some time.
 */
export function hostsThatSay(says: readonly (readonly [Address, Saying[]])[], timelines = new Timelines()) {
  const asked: Address[] = [];
  const lines: string[] = [];
  const log = (_: object, message: string) => void lines.push(message);
  const sayings = new Map(says);
  async function readState(address: Address): Promise<ReplicationState> {
    asked.push(address);
    const own = sayings.get(address) ?? [];
    const saying = own.length > 1 ? own.shift() : own[0];
    if (saying === undefined) await delay(silentMs);
    const said = saying instanceof Promise ? await delay(slowMs, await saying) : saying;
    if (said instanceof Error) throw said;
    if (said === undefined) throw late;
    return said;
  }
  const hosts = new Primary({
    hosts: says.map(([address]) => address),
    timelines,
    readState,
    logger: { info: log, warn: log },
  });
  return { hosts, asked, lines };
}

/** A connection to the address fails. */
export function lose(hosts: Primary, address: Address, error: Error = lost): void {
  hosts.closed(connectionTo(hosts, address), error);
}

/** A connection to a primary of the first timeline. */
export async function openTo(hosts: Primary, address: Address): Promise<Connection> {
  const connection = connectionTo(hosts, address);
  await connection.open();
  hosts.opened(connection);
  return connection;
}

function connectionTo(hosts: Primary, address: Address): Connection {
  const options = {
    ...{ address, client: {}, prepare: false, timeoutMs: 1, connectTimeoutMs: 1, checkTimeoutMs: 1 },
    check: async () => primary(1),
  };
  return new Connection(options, (closed, error) => hosts.closed(closed, error));
}
