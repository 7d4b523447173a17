/** Hosts of a cluster, and what they say of themselves. */
import type { ReplicationState } from "../../src/platform/database/connections/replication-state.ts";
import type { Address } from "../../src/platform/database/settings.ts";

export const a: Address = { host: "a", port: 1 };
export const b: Address = { host: "b", port: 2 };
export const c: Address = { host: "c", port: 3 };
export const standby = (cluster = "x"): ReplicationState => ({ cluster, timeline: undefined });
export const primary = (timeline: number, cluster = "x"): ReplicationState => ({ cluster, timeline });
/** A standby that says how far it knows the timelines; and one that has just received from the last of them. */
export const follower = (followed: number, isReceiving = false): ReplicationState => ({
  ...standby(),
  followed,
  isReceiving,
});
