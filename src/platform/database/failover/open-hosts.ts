import type { Logger } from "pino";
import { clientOptions, type Login, ownSession } from "../connections/client-options.ts";
import { checkTimeoutMs } from "../connections/connection.ts";
import { type Hosts, oneHost } from "../connections/hosts.ts";
import { openConnection } from "../connections/open-connection.ts";
import type { ReplicationState } from "../connections/replication-state.ts";
import type { Address, PostgresSettings } from "../settings.ts";
import { Primary } from "./primary.ts";
import { readReplicationState } from "./read-replication-state.ts";
import { Timelines } from "./timelines.ts";

/** The timelines that this process knows of. Several services of a process may use the same cluster. */
const timelines = new Timelines();

/** Where a user's connections go; a single host is not probed. @param known the timelines that the process knows of */
export function openHosts(
  settings: PostgresSettings,
  hosts: readonly Address[],
  login: Login,
  logger?: Logger,
  known = timelines,
): Hosts {
  const [only] = hosts;
  if (only && hosts.length === 1) return oneHost(only);
  async function readState(address: Address): Promise<ReplicationState> {
    const options = {
      address,
      prepare: false,
      timeoutMs: checkTimeoutMs,
      connectTimeoutMs: checkTimeoutMs,
      client: clientOptions(settings, address, login, settings.pooler === "none" ? ownSession : {}),
      renewPassword: login.renew,
      check: readReplicationState,
    };
    const connection = await openConnection(options, () => undefined);
    const { replicationState } = connection;
    void connection.terminate().catch(() => undefined);
    if (!replicationState) throw new Error("a server did not say what it is");
    return replicationState;
  }
  return new Primary({ hosts, timelines: known, readState, logger });
}
