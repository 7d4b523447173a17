/**
 * Chooses the primary among several hosts, by the replication states that they report (docs/operate/failover.md):
 *
 * 1. The primary takes writes on the newest timeline that any server of the cluster is known to write or to follow. Of
 *    several, the one that was used last is chosen, or else the first of the list.
 * 2. The choice is uncertain, and none is used, while a host that has not reported its state may be a newer primary;
 *    unless a standby receives the newest timeline right now, and the primary has not been away.
 * 3. Servers of another cluster are never used, and none of several clusters before one has been used.
 */
import type { ReplicationState } from "../connections/replication-state.ts";
import type { Address } from "../settings.ts";

export interface Known {
  /** The `system_identifier` of the cluster that is used; undefined before a primary has been used. */
  readonly cluster: string | undefined;
  /** By cluster: the highest timeline that any host was known to write or to follow. */
  readonly timelines: ReadonlyMap<string, number>;
}

/**
 * `outdated` takes writes on an older timeline; `foreign` is of another cluster than the one that is used, or may be.
 */
export type Role = "primary" | "standby" | "outdated" | "foreign";

export interface HostState {
  readonly address: Address;
  readonly state: ReplicationState;
}

/** A host that is there and has not reported its state: it takes its time, or has no connection left. */
interface SilentHost {
  readonly address: Address;
  /** The state that it reported last, if it has not been away since. */
  readonly lastState: ReplicationState | undefined;
}

/** The results of probing all hosts. A host to which no connection can be made is in neither list. */
interface Probed {
  readonly found: readonly HostState[];
  readonly silent: readonly SilentHost[];
  /** Hosts that were away a while ago: meanwhile another may have been promoted. */
  readonly returned: ReadonlySet<Address>;
}

export interface Choice {
  /** Undefined if no host is the primary, or if it is uncertain which one is. */
  readonly primary: HostState | undefined;
  /** The primary if none of `possiblyNewer` is a newer one; undefined if the choice is certain. */
  readonly uncertain: HostState | undefined;
  readonly possiblyNewer: readonly Address[];
  /** The cluster that is used; undefined if the hosts belong to several and none has been used before. */
  readonly cluster: string | undefined;
  readonly newest: number;
  /** The role of each host that has reported its state, in the order of the list. */
  readonly roles: readonly (HostState & { readonly role: Role })[];
}

export function roleOf({ cluster, timeline }: ReplicationState, known: Known): Role {
  if (cluster !== known.cluster) return "foreign";
  if (timeline === undefined) return "standby";
  return timeline < highest(known) ? "outdated" : "primary";
}

/** The highest known timeline of the cluster that is used; 0 if none is known. */
export function highest({ cluster = "", timelines }: Known): number {
  return timelines.get(cluster) ?? 0;
}

/** The highest timeline that the server knows of; 0 if it does not report one. */
export function newestKnownTo({ timeline, followed = 0 }: ReplicationState): number {
  return timeline ?? followed;
}

/** Chooses by the rules at the head of this file. @param last the host that was used last */
export function choosePrimary(
  { found, silent, returned }: Probed,
  known: Known,
  last: Address | undefined,
): Choice {
  const clusters = new Set(found.map(({ state }) => state.cluster));
  const [only] = clusters.size === 1 ? clusters : [];
  const cluster = known.cluster ?? only;
  const own = found.map(({ state }) => state).filter((state) => state.cluster === cluster);
  const newest = Math.max(highest({ ...known, cluster }), ...own.map(newestKnownTo));
  const judged = { cluster, timelines: new Map([[cluster ?? "", newest]]) };
  const roles = found.map((host) => ({ ...host, role: roleOf(host.state, judged) }));
  const primaries = roles.filter(({ role }) => role === "primary");
  const best = primaries.find(({ address }) => address === last) ?? primaries[0];
  const isBacked =
    best !== undefined &&
    !returned.has(best.address) &&
    own.some(({ isReceiving, followed }) => isReceiving === true && followed === newest);
  /** A host that last wrote an older timeline would have to go away before it could become a newer primary. */
  const mayBeNewer = ({ lastState }: SilentHost) =>
    lastState === undefined || (lastState.cluster === cluster && (lastState.timeline ?? newest) >= newest);
  const possiblyNewer = best && !isBacked ? silent.filter(mayBeNewer).map(({ address }) => address) : [];
  const isUncertain = possiblyNewer.length > 0;
  return {
    primary: isUncertain ? undefined : best,
    uncertain: isUncertain ? best : undefined,
    possiblyNewer,
    cluster,
    newest,
    roles,
  };
}
