import type { Logger } from "pino";
import type { Broker } from "./broker.ts";
import type { BrokerSettings } from "./broker-settings.ts";

/**
 * Creates the client of the broker. Its library is loaded only here, so only by a process that has a broker.
 * @param name the client's name at the broker, for its operators
 */
export async function openBroker(settings: BrokerSettings, name: string, logger: Logger): Promise<Broker> {
  const { createBroker } = await import("./broker.ts");
  return createBroker({ settings, name, logger });
}
