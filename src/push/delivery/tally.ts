/**
 * The messages of a chunk while it is sent: which devices are left, and why, and the outcomes that are to be stored.
 */

import { hash } from "node:crypto";
import type { DeadDevice } from "../devices/remove-devices.ts";
import type { Outcome } from "../providers/provider.ts";
import type { DeviceOutcome } from "../queue/store-outcomes.ts";
import type { TakenDevice } from "../queue/take-chunks.ts";
import type { Cause } from "./breaker.ts";

/** A device that can be sent to. */
export interface DeliveryDevice extends TakenDevice {
  /** The service of the provider that the token's messages go to. */
  readonly service: string;
}

/** Different reasons that are counted one by one; further ones are counted together. */
const maxReasons = 20;

export class Outcomes {
  /** The final outcomes one by one; undefined: nobody asks for them. */
  readonly each: DeviceOutcome[] | undefined;
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

  /** @param keepsEach whether what becomes of each device is kept */
  constructor(keepsEach = false) {
    this.each = keepsEach ? [] : undefined;
  }

  add(device: DeliveryDevice, outcome: Exclude<Outcome, { kind: "foreign" }>): void {
    const { kind } = outcome;
    this.counts[kind] += 1;
    const { id: deviceId, userId } = device;
    if (kind === "sent") this.each?.push({ userId, deviceId, outcome: "SENT", reason: null });
    if (kind === "dead" || kind === "failed")
      this.each?.push({ userId, deviceId, outcome: "FAILED", reason: outcome.reason });
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

/**
 * The id of the message to a device, the same each time it is sent: a UUID of version 8 (RFC 9562 section 5.8), lower
 * case.
 */
export function messageId(notificationId: string, deviceId: number): string {
  const hex = hash("sha256", `${notificationId}/${deviceId}`, "hex");
  const variant = "89ab".charAt(Number.parseInt(hex.charAt(16), 16) & 3);
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-${variant}${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}

/** A device without a final outcome. */
interface OpenDevice {
  readonly device: DeliveryDevice;
  /** Undefined: its message was not tried. */
  outcome: Outcome | undefined;
}

/** The states of services when the sending has ended. */
interface ServiceVerdicts {
  isHealthy(service: string): boolean;
  causeOf(service: string): Cause | undefined;
}

/** A device that is left. */
export interface LeftDevice {
  readonly id: number;
  readonly service: string;
  /** The wait that the provider wants for it, in milliseconds; 0 if none. */
  readonly afterMs: number;
}

/** The devices of a chunk that have no final outcome. */
export interface Left {
  /** Devices that were not tried, and after them those that wait for their service. */
  readonly waiting: readonly LeftDevice[];
  /** How many of them were not tried. */
  readonly untried: number;
  /** Devices whose message failed, while nothing shows that their service works. */
  readonly unclear: readonly LeftDevice[];
  /** Devices whose message failed by itself. */
  readonly failing: readonly LeftDevice[];
  /** Ids of the devices that an operator's repair must come before, by reason. */
  readonly blocked: ReadonlyMap<string, readonly number[]>;
}

export class Tally {
  /** The devices in the order of the chunk; undefined: the device has a final outcome, and is no longer needed. */
  readonly #open: (OpenDevice | undefined)[];
  readonly #keepsEach: boolean;
  #fresh: Outcomes;
  #retries = 0;
  /** The users of the messages that met a quota. */
  readonly #throttled: string[] = [];
  #final = 0;
  /** Services that the chunk's messages go to. */
  readonly services: ReadonlySet<string>;
  /** The last error for which devices are left; undefined: there was none. */
  reason: string | undefined;

  /** @param keepsEach whether what becomes of each device is kept */
  constructor(devices: readonly DeliveryDevice[], keepsEach = false) {
    this.#keepsEach = keepsEach;
    this.#fresh = new Outcomes(keepsEach);
    this.#open = devices.map((device) => ({ device, outcome: undefined }));
    this.services = new Set(devices.map(({ service }) => service));
  }

  /** Devices, with or without an outcome. */
  get size(): number {
    return this.#open.length;
  }

  /** The device of this index, if its message has no final outcome. */
  device(index: number): DeliveryDevice | undefined {
    return this.#open[index]?.device;
  }

  add(index: number, outcome: Outcome): void {
    const open = this.#open[index];
    if (open === undefined) return;
    open.outcome = outcome;
    // Whose fault it is shows at the end.
    if (outcome.kind === "foreign" || outcome.kind === "refused") return;
    this.#fresh.add(open.device, outcome);
    if (outcome.kind === "sent" || outcome.kind === "dead" || outcome.kind === "failed") this.#end(index);
    if (outcome.kind === "retry" || outcome.kind === "unavailable") this.reason = outcome.reason;
    if (outcome.kind !== "retry") return;
    this.#retries += 1;
    if (outcome.isThrottled) this.#throttled.push(open.device.userId);
  }

  #end(index: number): void {
    this.#open[index] = undefined;
    this.#final += 1;
  }

  /** Whether there are final outcomes that were not taken. */
  get hasFresh(): boolean {
    return this.#fresh.final > 0;
  }

  /** Takes the outcomes since the last call. */
  take(): Outcomes {
    const taken = this.#fresh;
    this.#fresh = new Outcomes(this.#keepsEach);
    return taken;
  }

  /** Ids of the devices without a final outcome. */
  get open(): number[] {
    return this.#idsFrom(0);
  }

  /** Gives up the devices from this index on, none of which was tried. @returns their ids */
  takeFrom(index: number): number[] {
    const taken = this.#idsFrom(index);
    this.#open.fill(undefined, index);
    return taken;
  }

  #idsFrom(index: number): number[] {
    return this.#open.slice(index).flatMap((open) => (open === undefined ? [] : [open.device.id]));
  }

  /** Decides by the services' states whose fault refusals and failures were, and what becomes of them. Call it once. */
  conclude(states: ServiceVerdicts): Left {
    // A quota is the reason of a pause if it is what most messages met that failed.
    const isSpent = this.isThrottledBeyond(this.#retries / 2);
    this.#concludeRefusals(states);
    const isOwn = ({ device: { service }, outcome }: OpenDevice) => {
      if (states.isHealthy(service)) return true;
      if (outcome?.kind !== "retry") return false;
      return outcome.isThrottled
        ? !(isSpent && states.causeOf(service) === "unavailable")
        : outcome.isOwn === true;
    };
    const left = Map.groupBy(
      this.#open.filter((open) => open !== undefined),
      ({ outcome }) => outcome?.kind ?? "untried",
    );
    const untried = left.get("untried") ?? [];
    const tried = [...(left.get("retry") ?? []), ...(left.get("unavailable") ?? [])];
    const blocked = Map.groupBy(left.get("blocked") ?? [], ({ outcome }) =>
      outcome?.kind === "blocked" ? outcome.reason : "",
    );
    return {
      waiting: [...untried, ...(left.get("refused") ?? [])].map(leftDevice),
      untried: untried.length,
      unclear: tried.filter((open) => !isOwn(open)).map(leftDevice),
      failing: tried.filter(isOwn).map(leftDevice),
      blocked: new Map([...blocked].map(([reason, some]) => [reason, some.map(({ device }) => device.id)])),
    };
  }

  /** A refusal is our fault only if the service is paused for it. If not, the message has failed by itself. */
  #concludeRefusals(states: ServiceVerdicts): void {
    for (const [index, open] of this.#open.entries()) {
      if (open?.outcome?.kind !== "foreign" && open?.outcome?.kind !== "refused") continue;
      const { kind, reason } = open.outcome;
      const isOurs = states.causeOf(open.device.service) === kind;
      if (kind === "foreign" && !isOurs) {
        this.#fresh.add(open.device, { kind: "failed", reason });
        this.#end(index);
        continue;
      }
      const outcome = isOurs
        ? ({ kind: "refused", reason } as const)
        : ({ kind: "retry", isOwn: true, reason } as const);
      this.#fresh.add(open.device, outcome);
      open.outcome = outcome;
      this.reason = reason;
    }
  }

  /** Whether there was at most this share of retries, measured by the final outcomes. */
  retriesWithin(share: number): boolean {
    return this.#retries <= this.#final * share;
  }

  /** Whether more messages than this met a quota, of several users. */
  isThrottledBeyond(messages: number): boolean {
    return this.#throttled.length > messages && new Set(this.#throttled).size > 1;
  }
}

function leftDevice({ device: { id, service }, outcome }: OpenDevice): LeftDevice {
  const isTried = outcome?.kind === "retry" || outcome?.kind === "unavailable";
  return { id, service, afterMs: isTried ? (outcome.afterMs ?? 0) : 0 };
}
