/** What came of a chunk's messages: how many of which outcome, who is left, and what that says of the provider. */
import type { DeadDevice } from "../devices/remove-dead.ts";
import type { Outcome } from "../providers/provider.ts";
import type { DeliveryDevice } from "./chunk-repository.ts";

/** The provider's word on itself, by which the sending of a chunk ends. */
export interface ProviderFailure {
  readonly kind: "unavailable" | "refused";
  /** Milliseconds that it asked for, the longest of a row; 0 if it did not. */
  readonly afterMs: number;
  readonly reason: string;
}

export class Tally {
  readonly #devices: readonly DeliveryDevice[];
  /** 1: is not to be sent to again. */
  readonly #done: Uint8Array;
  readonly #retriesInARow: number;
  readonly counts = { sent: 0, dead: 0, failed: 0, retry: 0, unavailable: 0, refused: 0 };
  readonly dead: DeadDevice[] = [];
  /** The longest wait that the provider asked for, in milliseconds. */
  afterMs = 0;
  /** Why devices are left, if errors left them. */
  reason: string | undefined;
  /** The reasons of those that failed. */
  readonly failures = new Set<string>();
  #inARow = 0;
  /** The longest wait asked for in the row. */
  #rowAfterMs = 0;

  constructor(devices: readonly DeliveryDevice[], retriesInARow: number) {
    this.#devices = devices;
    this.#done = new Uint8Array(devices.length);
    this.#retriesInARow = retriesInARow;
  }

  /** @returns what this outcome, or a row of them, says of the provider */
  add(index: number, outcome: Outcome): ProviderFailure | undefined {
    const { kind } = outcome;
    this.counts[kind] += 1;
    if (kind === "sent" || kind === "dead" || kind === "failed") {
      this.#done[index] = 1;
      this.#inARow = 0;
      this.#rowAfterMs = 0;
      if (kind === "dead") this.#addDead(index, outcome.asOf);
      else if (kind === "failed" && this.failures.size < 5) this.failures.add(outcome.reason);
      return undefined;
    }
    const { reason } = outcome;
    this.reason = reason;
    if (kind === "refused") return { kind, afterMs: 0, reason };
    const { afterMs = 0 } = outcome;
    this.afterMs = Math.max(this.afterMs, afterMs);
    this.#inARow += 1;
    this.#rowAfterMs = Math.max(this.#rowAfterMs, afterMs);
    if (kind === "unavailable") return { kind, afterMs, reason };
    if (this.#inARow < this.#retriesInARow) return undefined;
    return { kind: "unavailable", afterMs: this.#rowAfterMs, reason };
  }

  /** Messages that the provider answered for good: it works. */
  get answered(): number {
    return this.counts.sent + this.counts.dead + this.counts.failed;
  }

  /** Ids of the devices that are still to be sent to. */
  rest(): number[] {
    return this.#devices.flatMap(({ id }, index) => (this.#done[index] === 1 ? [] : [id]));
  }

  /** Where the provider does not say since when, what was not renewed since the chunk was loaded is dead. */
  #addDead(index: number, asOf: number | undefined): void {
    const device = this.#devices[index];
    if (device) this.dead.push({ deviceId: device.id, asOf: asOf ?? device.renewedAt + 1 });
  }
}
