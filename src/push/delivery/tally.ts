/** Counts the outcomes of a chunk's messages, keeps the devices that are left, and detects that the provider fails. */
import type { DeadDevice } from "../devices/remove-dead.ts";
import type { Outcome } from "../providers/provider.ts";
import type { DeliveryDevice } from "./chunk-repository.ts";

/** A failure of the provider itself, which ends the sending of a chunk. */
export interface ProviderFailure {
  readonly kind: "unavailable" | "refused";
  /** The longest wait that the provider wanted in a row of retries, in milliseconds; 0 if none. */
  readonly afterMs: number;
  readonly reason: string;
}

export class Tally {
  readonly #devices: readonly DeliveryDevice[];
  /** By index of the device; 1: the device has a final outcome and is not sent to again. */
  readonly #done: Uint8Array;
  readonly #retriesInARow: number;
  readonly counts = { sent: 0, dead: 0, failed: 0, retry: 0, unavailable: 0, refused: 0 };
  readonly dead: DeadDevice[] = [];
  /** The longest wait that the provider wanted, in milliseconds. */
  afterMs = 0;
  /** The error for which devices are left, if there was one. */
  reason: string | undefined;
  /** The first reasons of `failed` outcomes. */
  readonly failures = new Set<string>();
  #inARow = 0;
  /** The longest wait that the provider wanted in this row of retries. */
  #rowAfterMs = 0;

  constructor(devices: readonly DeliveryDevice[], retriesInARow: number) {
    this.#devices = devices;
    this.#done = new Uint8Array(devices.length);
    this.#retriesInARow = retriesInARow;
  }

  /** @returns the provider's failure, if this outcome or a row of them shows one */
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

  /** Messages with a final outcome. If there are any, the provider works. */
  get finalOutcomes(): number {
    return this.counts.sent + this.counts.dead + this.counts.failed;
  }

  /** Ids of the devices that are still to be sent to. */
  rest(): number[] {
    return this.#devices.flatMap(({ id }, index) => (this.#done[index] === 1 ? [] : [id]));
  }

  /** Without a time from the provider, the device counts as dead unless it was renewed after the chunk was loaded. */
  #addDead(index: number, asOf: number | undefined): void {
    const device = this.#devices[index];
    if (device) this.dead.push({ deviceId: device.id, asOf: asOf ?? device.renewedAt + 1 });
  }
}
