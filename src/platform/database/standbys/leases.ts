/**
 * When a process may rely on a standby: while its lease runs, for a fixed time since it sent the newest beat (a commit
 * on the primary) that the standby has. docs/operate/standbys.md says why no lease outlives an acknowledged change.
 */

/** Milliseconds that a lease runs from the moment at which its beat was sent. The same in every process. */
export const leaseMs = 2_000;

/** Milliseconds after which no lease runs any more from a beat that was sent before; for clocks that run 10% apart. */
export const longestLeaseMs = 2_200;

/** A moment by two clocks of this process. */
export interface Moment {
  /** The monotonic clock, performance.now(), which cannot be set. */
  readonly monotonicMs: number;
  readonly wallMs: number;
}

export const currentMoment = (): Moment => ({ monotonicMs: performance.now(), wallMs: Date.now() });

/** Milliseconds that have passed, and never fewer: the first clock may stand still while the machine is suspended. */
function elapsedMs(from: Moment, to: Moment): number {
  return Math.max(to.monotonicMs - from.monotonicMs, to.wallMs - from.wallMs);
}

/** What a server reports about itself in the same statement as its rows. */
export interface Evidence {
  /** This one server, since it was started. */
  readonly server: string;
  /** The latest beat of this process that the statement saw; null if it saw none. */
  readonly beat: number | null;
  readonly isStandby: boolean;
}

/** One commit of the process on the primary. */
export interface Beat {
  readonly number: number;
  readonly sentAt: Moment;
  /** The servers that the process says it may be reading from. */
  readonly servers: readonly string[];
}

/** A server that the process names in its beats, in each since the first. */
interface Listing {
  /** When the newest beat was sent that the server has shown. */
  shown: Moment;
  /** The first acknowledged beat that names it. */
  since: number | undefined;
}

/** The leases of one process. This class decides; standbys.ts runs the statements. */
export class Leases {
  /** Acknowledged, the newest first, as far as a lease may still run from them. */
  #beats: readonly Beat[] = [];
  #number = 0;
  readonly #listings = new Map<string, Listing>();

  /** The next beat; one at a time. A server that has shown no recent one is no longer named, nor relied on. */
  begin(now: Moment): Beat {
    for (const [server, { shown }] of this.#listings)
      if (elapsedMs(shown, now) >= leaseMs) this.#listings.delete(server);
    this.#number += 1;
    return { number: this.#number, sentAt: now, servers: [...this.#listings.keys()] };
  }

  /** The beat's commit is confirmed, by the synchronous standbys too. One that is not is never relied on. */
  acknowledge(beat: Beat, now: Moment): void {
    for (const server of beat.servers) {
      const listing = this.#listings.get(server);
      if (listing) listing.since ??= beat.number;
    }
    this.#beats = [beat, ...this.#beats.filter(({ sentAt }) => elapsedMs(sentAt, now) < leaseMs)];
  }

  /**
   * A server was looked at: one that follows is named in the next beat. @param askedAt before the statement was sent
   */
  observe(evidence: Evidence, askedAt: Moment): void {
    const beat = this.#latest(evidence);
    if (!evidence.isStandby || !beat || elapsedMs(beat.sentAt, askedAt) >= leaseMs) return;
    const listing = this.#listings.get(evidence.server);
    if (listing) listing.shown = beat.sentAt;
    else this.#listings.set(evidence.server, { shown: beat.sentAt, since: undefined });
  }

  /**
   * Whether what a statement sent at `askedAt` saw may be relied on, by requests that had come before. The beat must
   * have been sent after everybody could see that the process reads from this server.
   */
  vouches(evidence: Evidence, askedAt: Moment): boolean {
    const beat = this.#latest(evidence);
    const since = this.#listings.get(evidence.server)?.since;
    if (!evidence.isStandby || !beat || since === undefined) return false;
    return beat.number > since && elapsedMs(beat.sentAt, askedAt) < leaseMs;
  }

  /** The newest acknowledged beat that the server has. */
  #latest({ beat }: Evidence): Beat | undefined {
    return beat === null ? undefined : this.#beats.find(({ number }) => number <= beat);
  }
}
