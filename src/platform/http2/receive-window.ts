/** What the peer may still send, on a stream or on the connection (RFC 9113 section 5.2). Opened again at its half. */
export class ReceiveWindow {
  readonly #size: number;
  #used = 0;

  constructor(size: number) {
    this.#size = size;
  }

  /** Counts a DATA frame's payload, padding included. @returns the increment of WINDOW_UPDATE; 0: not yet */
  take(bytes: number): number {
    this.#used += bytes;
    if (this.#used < this.#size / 2) return 0;
    const increment = this.#used;
    this.#used = 0;
    return increment;
  }
}
