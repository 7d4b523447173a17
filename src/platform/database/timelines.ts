/**
 * The highest timeline of each cluster of which a process knows, whichever of its pools was told. Each promotion begins
 * a higher one, and from then on whoever writes a lower one is the primary no more.
 */
export class Timelines {
  readonly #highest = new Map<string, number>();
  readonly #heardAt = new Map<string, number>();
  readonly #listeners = new Set<() => void>();

  /** By the `system_identifier` of the cluster. */
  get highest(): ReadonlyMap<string, number> {
    return this.#highest;
  }

  /** When the highest of the cluster was heard of first, by performance.now(). It began before that. */
  heardAt(cluster: string): number {
    return this.#heardAt.get(cluster) ?? performance.now();
  }

  hear(cluster: string, timeline: number): void {
    if (timeline <= (this.#highest.get(cluster) ?? 0)) return;
    this.#highest.set(cluster, timeline);
    this.#heardAt.set(cluster, performance.now());
    for (const listener of [...this.#listeners]) listener();
  }

  /** The listener is called whenever a higher one is heard of, until {@link unsubscribe}. */
  subscribe(listener: () => void): void {
    this.#listeners.add(listener);
  }

  unsubscribe(listener: () => void): void {
    this.#listeners.delete(listener);
  }
}
