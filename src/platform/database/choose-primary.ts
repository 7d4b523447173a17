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
}

/** What is known by the primaries that have been used. */
export interface Known {
  /** The cluster that is meant; undefined before the first of them. */
  readonly cluster: string | undefined;
  /** The highest timeline of each cluster. */
  readonly timelines: ReadonlyMap<string, number>;
}

/** `outdated`: a primary of an earlier timeline; `foreign`: of another cluster, or it is not known whose it is. */
export type Role = "primary" | "standby" | "outdated" | "foreign";

export interface Found {
  readonly address: Address;
  readonly standing: Standing;
}

export interface Choice {
  /** Undefined where no host is one. */
  readonly primary: Found | undefined;
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

/**
 * Chooses the primary of the highest timeline, which is none that is lower than a known one. Of several, which are
 * for the cluster manager to prevent, it is the one that was used last, or else the first of the list.
 */
export function choosePrimary(found: readonly Found[], known: Known, last: Address | undefined): Choice {
  const clusters = new Set(found.map(({ standing }) => standing.cluster));
  // Where they do not agree at first, nobody can say which of them is meant.
  const [only] = clusters.size === 1 ? clusters : [];
  const cluster = known.cluster ?? only;
  const written = found.map(({ standing }) => (standing.cluster === cluster ? (standing.timeline ?? 0) : 0));
  const newest = Math.max(highest({ ...known, cluster }), ...written);
  const judged = { cluster, timelines: new Map([[cluster ?? "", newest]]) };
  const roles = found.map((one) => ({ ...one, role: roleOf(one.standing, judged) }));
  const primaries = roles.filter(({ role }) => role === "primary");
  return { primary: primaries.find(({ address }) => address === last) ?? primaries[0], roles };
}
