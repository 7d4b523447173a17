interface SeenBeat {
  readonly processId: string;
  readonly beat: number;
}

/** The newest beat of each process, as its row was read, and since when it has been that. */
export class SeenBeats {
  #seen: readonly (SeenBeat & { readonly since: number })[] = [];

  /** @param rows all that there are now */
  saw(rows: readonly SeenBeat[]): void {
    const since = performance.now();
    const before = this.#seen;
    this.#seen = rows.map(({ processId, beat }) => {
      const known = before.find((one) => one.processId === processId && one.beat === beat);
      return known ?? { processId, beat, since };
    });
  }

  /** The rows that have not changed for so many milliseconds. */
  unchangedFor(ms: number): readonly SeenBeat[] {
    const now = performance.now();
    return this.#seen.filter(({ since }) => now - since >= ms);
  }
}
