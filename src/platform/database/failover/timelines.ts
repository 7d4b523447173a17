/** The highest timeline of each cluster that a process knows of, from any of its pools. */
export class Timelines {
  readonly #highest = new Map<string, number>();
  readonly #firstKnownAt = new Map<string, number>();
  readonly #listeners = new Set<() => void>();

  /** By the `system_identifier` of the cluster. */
  get highest(): ReadonlyMap<string, number> {
    return this.#highest;
  }

  /** When the cluster's highest timeline became known, by performance.now(). The timeline began before that. */
  firstKnownAt(cluster: string): number {
    return this.#firstKnownAt.get(cluster) ?? performance.now();
  }

  record(cluster: string, timeline: number): void {
    if (timeline <= (this.#highest.get(cluster) ?? 0)) return;
    this.#highest.set(cluster, timeline);
    this.#firstKnownAt.set(cluster, performance.now());
    for (const listener of [...this.#listeners]) listener();
  }

  /** Calls the listener whenever a higher timeline becomes known, until {@link unsubscribe}. */
  subscribe(listener: () => void): void {
    this.#listeners.add(listener);
  }

  unsubscribe(listener: () => void): void {
    this.#listeners.delete(listener);
  }
}
