import { randomInt } from "node:crypto";

/** A random port, outside of those that the system gives to others. It may be taken: then the caller tries another. */
export const sparePort = (): number => randomInt(12_000, 30_000);

/**
 * Starts a server that cannot choose a port itself, or that must come back to its own port after an outage.
 * @param start tries it with new ports each time; undefined where one of them is taken
 * @throws Error where that has failed twenty times: then it is not the ports
 */
export async function onSparePorts<T>(what: string, start: () => Promise<T | undefined>): Promise<T> {
  for (let attempt = 0; attempt < 20; attempt += 1) {
    const started = await start();
    if (started !== undefined) return started;
  }
  throw new Error(`${what} did not start on any of twenty ports.`);
}
