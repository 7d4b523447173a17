/** Probes of hosts for their replication states. Those of one host may overlap; the last state of each is kept. */
import { sqlState } from "../../base/database-errors.ts";
import { codeOf } from "../../base/error-code.ts";
import type { ReplicationState } from "../connections/replication-state.ts";
import type { Address } from "../settings.ts";
import type { HostState } from "./choose-primary.ts";

/** The outcome of a probe: the host's state, or why the probe failed. */
export type ProbeResult = HostState | { readonly address: Address; readonly error: unknown };

interface LastProbe {
  /** When the probe began, by performance.now(). */
  readonly probedAt: number;
  /** The state that the host reported; undefined if it was away. */
  readonly state: ReplicationState | undefined;
}

/** Probes of one host that searches may have in flight at a time. */
const maxOfSearches = 2;

export class HostProbes {
  readonly #readState: (address: Address) => Promise<ReplicationState>;
  readonly #onState: (state: ReplicationState) => void;
  readonly #last = new Map<Address, LastProbe>();
  /** By host: the probes of searches that are in flight. */
  readonly #ofSearches = new Map<Address, Set<Promise<ProbeResult>>>();

  /** @param readState takes two seconds at most @param onState called with each state, however late */
  constructor(
    readState: (address: Address) => Promise<ReplicationState>,
    onState: (state: ReplicationState) => void,
  ) {
    this.#readState = readState;
    this.#onState = onState;
  }

  /** Probes a host. Never rejects. */
  async probe(address: Address): Promise<ProbeResult> {
    const probedAt = performance.now();
    try {
      const state = await this.#readState(address);
      this.#remember(address, { state, probedAt });
      this.#onState(state);
      return { address, state };
    } catch (error) {
      if (isAway(error)) this.#remember(address, { state: undefined, probedAt });
      return { address, error };
    }
  }

  /** As `probe`, once fewer than two of searches are in flight; undefined if `isOver` is aborted before it begins. */
  async probeInSearch(address: Address, isOver: AbortSignal): Promise<ProbeResult | undefined> {
    const inFlight = this.#ofSearches.get(address) ?? new Set();
    this.#ofSearches.set(address, inFlight);
    while (inFlight.size >= maxOfSearches) await Promise.race(inFlight);
    if (isOver.aborted) return undefined;
    const probe = this.probe(address).finally(() => inFlight.delete(probe));
    inFlight.add(probe);
    return probe;
  }

  /** The state that a host reported last, by a probe that began after `since`; undefined if it has been away since. */
  lastState(address: Address, since = 0): ReplicationState | undefined {
    const last = this.#last.get(address);
    return last && last.probedAt > since ? last.state : undefined;
  }

  recordAway(address: Address): void {
    this.#remember(address, { state: undefined, probedAt: performance.now() });
  }

  /** Probes overlap: one that began earlier than another says nothing about what has happened since. */
  #remember(address: Address, probe: LastProbe): void {
    if (probe.probedAt >= (this.#last.get(address)?.probedAt ?? 0)) this.#last.set(address, probe);
  }
}

const awayCodes =
  /^(ECONNREFUSED|EHOSTUNREACH|EHOSTDOWN|ENETUNREACH|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|CONNECT_TIMEOUT)$/;

/** Whether this process gets no connection to the host. 57P03: the server is starting, or shuts down. */
export function isAway(error: unknown): boolean {
  return sqlState(error) === "57P03" || awayCodes.test(codeOf(error) ?? "");
}

/** Whether the error shows that no server listens at the host: a server that has ended takes its sessions with it. */
export function hasRefused(error: unknown): boolean {
  return codeOf(error) === "ECONNREFUSED";
}
