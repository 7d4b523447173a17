import type { Logger } from "pino";
import type { Standing } from "./choose-primary.ts";
import { checkTimeoutMs, clientOptions, type Login } from "./client-options.ts";
import { Connection } from "./connection.ts";
import { type Hosts, oneHost } from "./hosts.ts";
import { Primary } from "./primary.ts";
import type { Address, DatabaseSettings } from "./settings.ts";
import { askStanding } from "./standing.ts";
import { Timelines } from "./timelines.ts";

/** The services of a process may be on one cluster. */
const timelines = new Timelines();

/**
 * Where a user's connections go. With one host, nobody asks it what it is.
 * @param known the timelines of which the process knows
 */
export function openHosts(
  settings: Extract<DatabaseSettings, { kind: "postgres" }>,
  hosts: readonly Address[],
  login: Login,
  logger?: Logger,
  known = timelines,
): Hosts {
  const [only] = hosts;
  if (only && hosts.length === 1) return oneHost(only);
  async function ask(address: Address): Promise<Standing> {
    const options = {
      ...{ address, prepare: false, timeoutMs: checkTimeoutMs },
      ...{ connectTimeoutMs: checkTimeoutMs, checkTimeoutMs },
      client: clientOptions(settings, address, login, {}),
      check: askStanding,
    };
    const connection = new Connection(options, () => undefined);
    await connection.open();
    const { standing } = connection;
    void connection.end().catch(() => undefined);
    if (!standing) throw new Error("a server did not say what it is");
    return standing;
  }
  return new Primary({ hosts, timelines: known, ask, logger });
}
