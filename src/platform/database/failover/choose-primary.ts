/**
 * Chooses the primary among several hosts, by the replication states that they report:
 *
 * 1. The primary is a server that takes writes on the newest timeline of the cluster. A promotion begins a new
 *    timeline, so an old primary that comes back, or was only cut off, writes a lower one and is outdated.
 * 2. The newest timeline is the highest that any server of the cluster is known to write or to follow, now or before.
 * 3. If several primaries write that timeline, which the cluster manager should prevent, the one that was used last is
 *    chosen, or else the first of the list.
 * 4. The choice is uncertain while a host that has not reported its state may be a newer primary. No primary is used
 *    then.
 * 5. The choice is certain all the same if a standby receives the newest timeline right now, and the primary has not
 *    been away: that standby would have followed a newer primary.
 * 6. Servers of another cluster are never used. If the cluster is not known yet, and the hosts belong to several, none
 *    of them is used.
 */
import type { ReplicationState } from "../connections/replication-state.ts";
import type { Address } from "../settings.ts";

/** What is known from earlier probes. */
export interface Known {
  /** The `system_identifier` of the cluster that is used; undefined before a primary has been used. */
  readonly cluster: string | undefined;
  /** By cluster: the highest timeline that any host was known to write or to follow. */
  readonly timelines: ReadonlyMap<string, number>;
}

/**
 * `primary` takes writes on the newest timeline, `outdated` on an older one. `foreign` belongs to another cluster than
 * the one that is used, or it is not known which one that is.
 */
export type Role = "primary" | "standby" | "outdated" | "foreign";

/** A host that has reported its state. */
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
  /** Hosts that were away a while ago. Meanwhile another may have been promoted, and their standbys not know it yet. */
  readonly returned: ReadonlySet<Address>;
}

export interface Choice {
  /** Undefined if no host is the primary, or if it is uncertain which one is. */
  readonly primary: HostState | undefined;
  /**
   * The host that would be the primary if none of `possiblyNewer` is a newer one; undefined if the choice is certain.
   */
  readonly uncertain: HostState | undefined;
  /** Silent hosts that may be a newer primary. */
  readonly possiblyNewer: readonly Address[];
  /** The cluster that is used; undefined if the hosts belong to several and none has been used before. */
  readonly cluster: string | undefined;
  /** The newest timeline of that cluster. */
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

/**
 * Chooses by the rules at the head of this file.
 * @param last the host that was used last, if one was
 */
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
