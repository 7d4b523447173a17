/** Outcomes of a chunk's messages, gathered until they are stored together. */
import type { DeadDevice } from "../devices/remove-dead.ts";
import type { Outcome } from "../providers/provider.ts";
import type { TakenDevice } from "../queue/take-chunks.ts";

/** A device that can be sent to. */
export interface DeliveryDevice extends TakenDevice {
  /** The service of the provider that the token's messages go to. */
  readonly service: string;
}

/** Different reasons that are counted one by one; further ones are counted together. */
const maxReasons = 20;

export class Outcomes {
  /** Messages by outcome. */
  readonly counts = { sent: 0, dead: 0, failed: 0, blocked: 0, retry: 0, unavailable: 0, refused: 0 };
  /** Ids of the devices whose message was accepted. */
  readonly sent: number[] = [];
  readonly dead: (DeadDevice & { readonly userId: string })[] = [];
  /** Users with an accepted or a dead device, and whether a device of theirs was accepted. */
  readonly users = new Map<string, boolean>();
  /** Devices that were reported dead, by reason. */
  readonly deaths = new Map<string, number>();
  /** Failed messages by reason, without the dead devices. */
  readonly failures = new Map<string, number>();
  /** Blocked messages by reason. */
  readonly alarms = new Map<string, number>();

  add(device: DeliveryDevice, outcome: Exclude<Outcome, { kind: "foreign" }>): void {
    const { kind } = outcome;
    this.counts[kind] += 1;
    if (kind === "sent") {
      this.sent.push(device.id);
      this.users.set(device.userId, true);
    }
    if (kind === "dead") this.#addDead(device, outcome.asOf, outcome.reason);
    if (kind === "blocked") increase(this.alarms, outcome.reason);
    if (kind !== "failed") return;
    const isNew = !this.failures.has(outcome.reason);
    increase(this.failures, isNew && this.failures.size >= maxReasons ? "other" : outcome.reason);
  }

  /** Without a time from the provider, the device counts as dead unless it was renewed after the chunk was loaded. */
  #addDead({ id, userId, renewedAt }: DeliveryDevice, asOf: number | undefined, reason: string): void {
    this.dead.push({ deviceId: id, userId, asOf: asOf ?? renewedAt + 1 });
    increase(this.deaths, reason);
    if (!this.users.has(userId)) this.users.set(userId, false);
  }

  /** Messages with a final outcome. */
  get final(): number {
    return this.counts.sent + this.counts.dead + this.counts.failed;
  }

  /** Adds the failed devices, the dead ones among them, to those by reason. */
  addTo(failures: Record<string, number>): void {
    for (const [reason, count] of [...this.failures, ...this.deaths])
      failures[reason] = (failures[reason] ?? 0) + count;
  }
}

function increase(counts: Map<string, number>, reason: string): void {
  counts.set(reason, (counts.get(reason) ?? 0) + 1);
}
