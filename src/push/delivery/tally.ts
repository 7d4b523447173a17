/**
 * The messages of a chunk while it is sent: which devices are left, and why, and the outcomes that are to be stored.
 */
import type { Outcome } from "../providers/provider.ts";
import type { TakenDevice } from "../queue/take-chunks.ts";
import type { Cause } from "./breaker.ts";
import { Outcomes } from "./outcomes.ts";

/** A device that can be sent to. */
export interface DeliveryDevice extends TakenDevice {
  /** The service of the provider that the token's messages go to. */
  readonly service: string;
}

/**
 * What an outcome leaves behind. `tried`: the device is left, and its service may be the cause. `own`: the service is
 * not. The others wait for the end, when it shows whether the service is paused for more than this message.
 */
type Mark = "untried" | "tried" | "own" | "blocked" | "throttled" | "foreign" | "refused";

/** A device without a final outcome. */
interface OpenDevice {
  readonly device: DeliveryDevice;
  mark: Mark;
  /** The wait that the provider wants, in milliseconds. */
  afterMs: number;
  /** Why it was refused or blocked, or its token was taken for somebody else's. */
  reason: string;
}

/** The verdicts on services when the sending has ended. */
interface ServiceVerdicts {
  /** Whether the service has shown lately that it works, so that a message's failure is the message's own. */
  isHealthy(service: string): boolean;
  /** Why the service is paused or being probed; undefined: it is not. */
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
  /** Devices that wait for their turn or for their service; those that were not tried come first. */
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
  /** The devices by their places in the chunk; undefined: the device has a final outcome, and is no longer needed. */
  readonly #open: (OpenDevice | undefined)[];
  #fresh = new Outcomes();
  #retries = 0;
  /** The users of the messages that met a quota. */
  readonly #throttled: string[] = [];
  #final = 0;
  /** Services that the chunk's messages go to. */
  readonly services: ReadonlySet<string>;
  /** The last error for which devices are left; undefined: there was none. */
  reason: string | undefined;

  constructor(devices: readonly DeliveryDevice[]) {
    this.#open = devices.map((device) => ({ device, mark: "untried", afterMs: 0, reason: "" }));
    this.services = new Set(devices.map(({ service }) => service));
  }

  /** Devices, with or without an outcome. */
  get size(): number {
    return this.#open.length;
  }

  /** The device at a place whose message has no final outcome. */
  device(index: number): DeliveryDevice | undefined {
    return this.#open[index]?.device;
  }

  add(index: number, outcome: Outcome): void {
    const open = this.#open[index];
    if (open === undefined) return;
    if (outcome.kind === "foreign" || outcome.kind === "refused") {
      open.mark = outcome.kind;
      open.reason = outcome.reason;
      return;
    }
    this.#fresh.add(open.device, outcome);
    if (outcome.kind === "blocked") {
      open.mark = outcome.kind;
      open.reason = outcome.reason;
      return;
    }
    if (outcome.kind === "sent" || outcome.kind === "dead" || outcome.kind === "failed") {
      this.#end(index);
      return;
    }
    this.reason = outcome.reason;
    open.mark = "tried";
    open.afterMs = outcome.afterMs ?? 0;
    if (outcome.kind === "unavailable") return;
    this.#retries += 1;
    if (outcome.isOwn) open.mark = "own";
    if (!outcome.isThrottled) return;
    open.mark = "throttled";
    this.#throttled.push(open.device.userId);
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
    this.#fresh = new Outcomes();
    return taken;
  }

  /** Ids of the devices without a final outcome. */
  get open(): number[] {
    return this.#open.flatMap((open) => (open === undefined ? [] : [open.device.id]));
  }

  /** Gives up the devices from this place on, none of which was tried. @returns their ids */
  takeFrom(index: number): number[] {
    const taken = this.#open.slice(index).flatMap((open) => (open === undefined ? [] : [open.device.id]));
    this.#open.fill(undefined, index);
    return taken;
  }

  /** Decides by the services' states whose fault refusals and failures were, and what becomes of them. Call it once. */
  conclude({ isHealthy, causeOf }: ServiceVerdicts): Left {
    // A quota is the reason of a pause if it is what most messages met that failed.
    const isSpent = this.isThrottledBeyond(this.#retries / 2);
    for (const [index, open] of this.#open.entries()) {
      if (open === undefined) continue;
      const { device, reason, mark } = open;
      const cause = causeOf(device.service);
      const isOwn = cause !== mark;
      if (mark === "throttled") open.mark = isSpent && cause === "unavailable" ? "tried" : "own";
      if (mark !== "foreign" && mark !== "refused") continue;
      if (mark === "foreign" && isOwn) {
        this.#fresh.add(device, { kind: "failed", reason });
        this.#end(index);
        continue;
      }
      this.reason = reason;
      open.mark = isOwn ? "own" : "refused";
      this.#fresh.add(device, { kind: isOwn ? "retry" : "refused", reason });
    }
    const left = this.#open.filter((open) => open !== undefined);
    const where = (is: (open: OpenDevice) => boolean): LeftDevice[] =>
      left.filter(is).map(({ device: { id, service }, afterMs }) => ({ id, service, afterMs }));
    const untried = where(({ mark }) => mark === "untried");
    const blocked = Map.groupBy(
      left.filter(({ mark }) => mark === "blocked"),
      ({ reason }) => reason,
    );
    const isOwn = ({ mark, device }: OpenDevice) =>
      mark === "own" || (mark === "tried" && isHealthy(device.service));
    return {
      waiting: [...untried, ...where(({ mark }) => mark === "refused")],
      untried: untried.length,
      unclear: where((open) => open.mark === "tried" && !isOwn(open)),
      failing: where(isOwn),
      blocked: new Map([...blocked].map(([reason, some]) => [reason, some.map(({ device }) => device.id)])),
    };
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
