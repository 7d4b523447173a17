/**
 * Which of several hosts is the primary, by what they say of themselves. An old primary that comes back, or was only
 * cut off, takes itself for one; it has a lower timeline than the one that was promoted in its place.
 */
import type { Address } from "./settings.ts";

/** What a server says of itself. */
export interface Standing {
  /** The same for a primary and its standbys, and for no other cluster (`system_identifier`). */
  readonly cluster: string;
  /** That of the log that the server writes: each promotion begins a higher one. Undefined for a standby. */
  readonly timeline: number | undefined;
  /** Of a standby: the highest that it is known to have followed. It may follow a higher one for some minutes. */
  readonly followed?: number;
  /** Of a standby: whether it has just received something of that timeline, so that no later one is known to it. */
  readonly isReceiving?: boolean;
}

/** What is known of earlier looks. */
export interface Known {
  /** The cluster that is meant; undefined before a primary has been used. */
  readonly cluster: string | undefined;
  /** The highest timeline of each cluster that any host was known to write or to follow. */
  readonly timelines: ReadonlyMap<string, number>;
}

/** `outdated`: a primary of an earlier timeline; `foreign`: of another cluster, or it is not known whose it is. */
export type Role = "primary" | "standby" | "outdated" | "foreign";

export interface Found {
  readonly address: Address;
  readonly standing: Standing;
}

/** A host that is there and has not said what it is: it takes its time, or has no connection left. */
interface Silent {
  readonly address: Address;
  /** What it said before, if it has not been away since. */
  readonly before: Standing | undefined;
}

/** What came of asking the hosts. One at whose address nobody takes connections is in neither list. */
interface Heard {
  readonly found: readonly Found[];
  readonly silent: readonly Silent[];
  /** Hosts that were away a while ago. Another may have been promoted since, and a standby that follows them not know. */
  readonly returned: ReadonlySet<Address>;
}

export interface Choice {
  /** Undefined where no host is one, or it is withheld. */
  readonly primary: Found | undefined;
  /** What would be the primary, if it were certain that none of the rivals is a newer one. */
  readonly withheld: Found | undefined;
  /** Silent hosts that may be a newer primary. */
  readonly rivals: readonly Address[];
  /** The cluster that is meant; undefined where nobody can say which of several. */
  readonly cluster: string | undefined;
  /** Its highest timeline of which anybody knows. */
  readonly newest: number;
  /** The role of each host that has said something, in the order of the list. */
  readonly roles: readonly (Found & { readonly role: Role })[];
}

export function roleOf({ cluster, timeline }: Standing, known: Known): Role {
  if (cluster !== known.cluster) return "foreign";
  if (timeline === undefined) return "standby";
  return timeline < highest(known) ? "outdated" : "primary";
}

/** The highest known timeline of the cluster that is meant; 0 where none is known. */
export function highest({ cluster = "", timelines }: Known): number {
  return timelines.get(cluster) ?? 0;
}

/** The highest timeline of which the server knows; 0 where it does not say. */
export function newestOf({ timeline, followed = 0 }: Standing): number {
  return timeline ?? followed;
}

/**
 * Chooses the primary of the highest timeline, which is none that is lower than one of which anybody knows. Of
 * several, which are for the cluster manager to prevent, it is the one that was used last, or else the first of the
 * list. It is withheld while a host that does not say what it is may be a newer one, and no standby speaks for it; none speaks for
 * one that was away.
 */
export function choosePrimary(
  { found, silent, returned }: Heard,
  known: Known,
  last: Address | undefined,
): Choice {
  const clusters = new Set(found.map(({ standing }) => standing.cluster));
  // Where they do not agree at first, nobody can say which of them is meant.
  const [only] = clusters.size === 1 ? clusters : [];
  const cluster = known.cluster ?? only;
  const own = found.map(({ standing }) => standing).filter((standing) => standing.cluster === cluster);
  const newest = Math.max(highest({ ...known, cluster }), ...own.map(newestOf));
  const judged = { cluster, timelines: new Map([[cluster ?? "", newest]]) };
  const roles = found.map((one) => ({ ...one, role: roleOf(one.standing, judged) }));
  const primaries = roles.filter(({ role }) => role === "primary");
  const best = primaries.find(({ address }) => address === last) ?? primaries[0];
  const isBacked =
    best !== undefined &&
    !returned.has(best.address) &&
    own.some(({ isReceiving, followed }) => isReceiving === true && followed === newest);
  /** One that wrote an older timeline would have to go away before it could be made a newer primary. */
  const mayBeNewer = ({ before }: Silent) =>
    before === undefined || (before.cluster === cluster && (before.timeline ?? newest) >= newest);
  const rivals = best && !isBacked ? silent.filter(mayBeNewer).map(({ address }) => address) : [];
  const isWithheld = rivals.length > 0;
  return {
    primary: isWithheld ? undefined : best,
    withheld: isWithheld ? best : undefined,
    ...{ rivals, cluster, newest, roles },
  };
}
