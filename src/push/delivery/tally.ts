/** The outcomes of a chunk's messages: how many there are of each, and which devices are left, and why. */
import type { DeadDevice } from "../devices/remove-dead.ts";
import type { Outcome } from "../providers/provider.ts";
import type { DeliveryDevice } from "./chunk-repository.ts";

/** What an outcome leaves behind. `tried`: the device is left, and its service may be the cause. `own`: it is not. */
type Mark = "untried" | "done" | "tried" | "own" | "foreign" | "refused";

/** What is known of a device's service when the sending has ended. */
interface ServiceVerdicts {
  /** The service has shown that it works, so what it failed to do is the message's own failure. */
  works(index: number): boolean;
  /** The service takes most users' tokens for somebody else's. */
  isForeign(index: number): boolean;
}

/** Ids of the devices of a chunk that have no final outcome. */
export interface Left {
  /** Devices that wait for their turn or for their service; those that were not tried come first. */
  readonly waiting: readonly number[];
  /** How many of them were not tried. */
  readonly untried: number;
  /** Devices whose message failed, while nothing shows that their service works. */
  readonly unclear: readonly number[];
  /** Devices whose message failed by itself. */
  readonly failing: readonly number[];
}

/** Different reasons that are counted; the others are counted together. */
const maxReasons = 20;

export class Tally {
  readonly #devices: readonly DeliveryDevice[];
  readonly #marks: Mark[];
  /** Reasons of `foreign` outcomes by index, until it is decided whose fault they are. */
  readonly #foreign = new Map<number, string>();
  /** Messages by outcome; complete once it is concluded. */
  readonly counts = { sent: 0, dead: 0, failed: 0, retry: 0, unavailable: 0, refused: 0 };
  readonly dead: (DeadDevice & { readonly userId: string })[] = [];
  /** Ids of the devices whose message was accepted. */
  readonly sent: number[] = [];
  /** Users whose devices were accepted or reported dead, and whether one was accepted. */
  readonly users = new Map<string, boolean>();
  /** The longest wait that the provider wanted, in milliseconds. */
  afterMs = 0;
  /** The last error for which devices are left, if there was one. */
  reason: string | undefined;
  /** Devices that were reported dead, by reason. */
  readonly deaths = new Map<string, number>();
  /** Failed messages by reason, without the dead devices. */
  readonly failures = new Map<string, number>();
  /** Reasons of failures that an operator can mend. */
  readonly alarms = new Map<string, number>();

  constructor(devices: readonly DeliveryDevice[]) {
    this.#devices = devices;
    this.#marks = devices.map(() => "untried");
  }

  add(index: number, outcome: Outcome): void {
    const { kind } = outcome;
    this.#marks[index] = markOf(outcome);
    if (kind === "foreign") {
      this.#foreign.set(index, outcome.reason);
      return;
    }
    this.counts[kind] += 1;
    if (kind === "dead") {
      this.#addDead(index, outcome.asOf);
      count(this.deaths, outcome.reason);
    }
    if (kind === "sent") this.#addSent(index);
    if (kind === "failed") this.#addFailure(outcome.reason);
    if (kind === "failed" && outcome.isAlarming) count(this.alarms, outcome.reason);
    if (kind === "retry" || kind === "unavailable" || kind === "refused") this.reason = outcome.reason;
    if (kind === "retry" || kind === "unavailable")
      this.afterMs = Math.max(this.afterMs, outcome.afterMs ?? 0);
  }

  /** Decides what the services' states leave open: foreign tokens, and whose failures the retries are. Call it once. */
  conclude({ works, isForeign }: ServiceVerdicts): Left {
    for (const [index, reason] of this.#foreign) {
      if (isForeign(index)) {
        this.reason = reason;
        this.#marks[index] = "refused";
        this.counts.refused += 1;
      } else {
        this.#marks[index] = "done";
        this.counts.failed += 1;
        this.#addFailure(reason);
      }
    }
    const indices = this.#marks.keys().toArray();
    const where = (is: (mark: Mark, index: number) => boolean) =>
      indices.filter((index) => is(this.#marks[index] ?? "done", index)).map((index) => this.#idOf(index));
    const untried = where((mark) => mark === "untried");
    const refused = where((mark) => mark === "refused");
    return {
      waiting: [...untried, ...refused],
      untried: untried.length,
      unclear: where((mark, index) => mark === "tried" && !works(index)),
      failing: where((mark, index) => mark === "own" || (mark === "tried" && works(index))),
    };
  }

  /** Messages with a final outcome. */
  get finalOutcomes(): number {
    return this.counts.sent + this.counts.dead + this.counts.failed;
  }

  #idOf(index: number): number {
    return this.#devices[index]?.id ?? 0;
  }

  #addFailure(reason: string): void {
    const isNew = !this.failures.has(reason);
    count(this.failures, isNew && this.failures.size >= maxReasons ? "other" : reason);
  }

  /** Without a time from the provider, the device counts as dead unless it was renewed after the chunk was loaded. */
  #addDead(index: number, asOf: number | undefined): void {
    const device = this.#devices[index];
    if (!device) return;
    const { id, userId, renewedAt } = device;
    this.dead.push({ deviceId: id, userId, asOf: asOf ?? renewedAt + 1 });
    if (!this.users.has(userId)) this.users.set(userId, false);
  }

  #addSent(index: number): void {
    const device = this.#devices[index];
    if (!device) return;
    this.sent.push(device.id);
    this.users.set(device.userId, true);
  }
}

function markOf(outcome: Outcome): Mark {
  const { kind } = outcome;
  if (kind === "sent" || kind === "dead" || kind === "failed") return "done";
  if (kind === "retry") return outcome.isOwn ? "own" : "tried";
  return kind === "unavailable" ? "tried" : kind;
}

function count(counts: Map<string, number>, reason: string): void {
  counts.set(reason, (counts.get(reason) ?? 0) + 1);
}
