import { randomInt } from "node:crypto";

/**
 * A port for a server that cannot choose one itself, or that must come back to its own after an outage: at random, and
 * outside of those that the system gives to others meanwhile. It may be taken: then another is tried.
 */
export const sparePort = (): number => randomInt(12_000, 30_000);
