/**
 * The messages of a chunk while it is sent: which devices are left, and why, and the outcomes that are to be stored.
 */
import type { Outcome } from "../providers/provider.ts";
import { type DeliveryDevice, Outcomes } from "./outcomes.ts";
import type { ServiceStates } from "./service-states.ts";

/** A device without a final outcome. */
interface OpenDevice {
  readonly device: DeliveryDevice;
  /** Undefined: its message was not tried. */
  outcome: Outcome | undefined;
}

/** The states of services when the sending has ended. */
type ServiceVerdicts = Pick<ServiceStates, "isHealthy" | "causeOf">;

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
    this.#fresh = new Outcomes();
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
  conclude({ isHealthy, causeOf }: ServiceVerdicts): Left {
    // A quota is the reason of a pause if it is what most messages met that failed.
    const isSpent = this.isThrottledBeyond(this.#retries / 2);
    this.#concludeRefusals(causeOf);
    const isOwn = ({ device: { service }, outcome }: OpenDevice) => {
      if (isHealthy(service)) return true;
      if (outcome?.kind !== "retry") return false;
      return outcome.isThrottled ? !(isSpent && causeOf(service) === "unavailable") : outcome.isOwn === true;
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
  #concludeRefusals(causeOf: ServiceVerdicts["causeOf"]): void {
    for (const [index, open] of this.#open.entries()) {
      if (open?.outcome?.kind !== "foreign" && open?.outcome?.kind !== "refused") continue;
      const { kind, reason } = open.outcome;
      const isOurs = causeOf(open.device.service) === kind;
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
