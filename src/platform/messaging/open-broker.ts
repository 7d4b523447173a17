import type { Logger } from "pino";
import type { Broker } from "./broker.ts";
import type { BrokerSettings } from "./broker-settings.ts";

/** The broker of these settings. The client library is loaded by those only who have one. @param name for operators */
export async function openBroker(settings: BrokerSettings, name: string, logger: Logger): Promise<Broker> {
  const { createBroker } = await import("./broker.ts");
  return createBroker({ settings, name, logger });
}
