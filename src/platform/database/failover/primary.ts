/**
 * The primary among several hosts (docs/operate/failover.md). A search probes all at once, and choose-primary.ts
 * decides. Connections to any other host, and those that began on an older timeline, are ended.
 */
import { setTimeout as delay } from "node:timers/promises";
import { sqlState } from "../../base/database-errors.ts";
import { codeOf } from "../../base/error-code.ts";
import { pause } from "../../base/loop.ts";
import { type Connection, connectionLost, type Result } from "../connections/connection.ts";
import type { Hosts } from "../connections/hosts.ts";
import type { ReplicationState } from "../connections/replication-state.ts";
import type { Address } from "../settings.ts";
import {
  type Choice,
  choosePrimary,
  type HostState,
  highest,
  type Known,
  newestKnownTo,
  type Role,
  roleOf,
} from "./choose-primary.ts";
import { HostProbes, hasRefused, isAway, type ProbeResult } from "./host-probes.ts";
import { PeriodicProbe } from "./periodic-probe.ts";
import { readReplicationState } from "./read-replication-state.ts";
import type { Timelines } from "./timelines.ts";

/** Milliseconds that a search waits for the other hosts once one has reported its state. */
const otherHostsMs = 500;
/** Milliseconds between two searches in the background. */
const searchPauseMs = 500;
/** Milliseconds until every process that reaches a new primary has left the old one: 1.05 s, and a probe of 2 s. */
const leaveMs = 3_250;
/** The timeline of a cluster in which no standby was ever promoted. */
const firstTimeline = 1;
/** Milliseconds for which a read-only transaction raises no further doubts after one has. */
const readOnlyPauseMs = 5_000;

interface Dependencies {
  readonly hosts: readonly Address[];
  readonly timelines: Timelines;
  /** Reads a host's state, on a connection of its own; it takes two seconds at most. */
  readonly readState: (address: Address) => Promise<ReplicationState>;
  /** Undefined in commands, which end before the primary changes. */
  readonly logger: Readonly<Record<"info" | "warn", (fields: object, message: string) => void>> | undefined;
}

/** What a search has found out by now; a host without a result has not responded. */
type ProbeResults = ReadonlyMap<Address, ProbeResult>;

const nameOf = ({ host, port }: Address) => `${host}:${port}`;

export class Primary implements Hosts {
  readonly #hosts: readonly Address[];
  readonly #logger: Dependencies["logger"];
  readonly #connections = new Set<Connection>();
  readonly #periodicProbes: readonly PeriodicProbe[];
  readonly #probes: HostProbes;
  readonly #timelines: Timelines;
  /** The cluster of the primary that was used last; undefined before any was. */
  #cluster: string | undefined;
  /** The timeline of the primary that was used last; 0 before any was. */
  #timeline = 0;
  /** The host that was found last; undefined before any was. */
  #last: Address | undefined;
  /** When a search last found it, by performance.now(). */
  #foundAt = 0;
  /** Hosts that were away since the last successful search began; each with the moment, by performance.now(). */
  readonly #away = new Map<Address, number>();
  /** Until when a read-only transaction raises no doubts, by performance.now(). */
  #readOnlyUntil = 0;
  /** How often there was a reason to search. */
  #doubts = 1;
  /** The value of `#doubts` when the last successful search began. */
  #settled = 0;
  #isSearching = false;
  #search: Promise<Address> | undefined;
  /** The hosts in the last warning, as text: a warning is not repeated while they are the same. */
  #lastWarning = "";

  constructor({ hosts, timelines, readState, logger }: Dependencies) {
    this.#hosts = hosts;
    this.#timelines = timelines;
    this.#logger = logger;
    this.#probes = new HostProbes(readState, (state) => this.#recordTimeline(state));
    this.#periodicProbes = hosts.map(
      (address) =>
        new PeriodicProbe(
          async () => address !== this.#last && this.#probes.probe(address),
          () => this.#connections.size > 0,
        ),
    );
  }

  get #isInDoubt(): boolean {
    return this.#doubts > this.#settled;
  }

  /** Calls at the same time share a search. */
  async locate(): Promise<Address> {
    if (this.#last && !this.#isInDoubt) return this.#last;
    this.#search ??= this.#find().finally(() => {
      this.#search = undefined;
    });
    return this.#search;
  }

  async check(query: (text: string) => Promise<Result>): Promise<ReplicationState> {
    const state = await readReplicationState(query);
    this.#recordTimeline(state);
    const role = roleOf(state, this.#known);
    if (role !== "primary") throw noPrimary(`the server ${words[role]}`);
    this.#learn(state);
    return state;
  }

  /** Two errors raise doubts: the server takes no writes, or no standby confirms its commits. */
  isDoubtful(error: unknown): boolean {
    if (codeOf(error) === "CONNECTION_UNCONFIRMED") return true;
    if (sqlState(error) !== "25006") return false;
    // A primary may be set to read-only transactions. Then each write fails so, and each search finds the same host.
    const now = performance.now();
    if (now < this.#readOnlyUntil) return false;
    this.#readOnlyUntil = now + readOnlyPauseMs;
    return true;
  }

  opened(connection: Connection): void {
    if (connection.isClosed) return;
    this.#connections.add(connection);
    this.#timelines.subscribe(this.#leaveOutdated);
    this.#leaveOutdated();
    for (const probe of this.#periodicProbes) void probe.start();
  }

  closed(connection: Connection, error: Error | undefined): void {
    this.#connections.delete(connection);
    if (this.#connections.size === 0) this.#timelines.unsubscribe(this.#leaveOutdated);
    if (isAway(error)) {
      this.#away.set(connection.address, performance.now());
      this.#probes.recordAway(connection.address);
    }
    // 53300: the server is there, and has no connection left. If none of ours is open, only a search finds a successor.
    const isThere = sqlState(error) === "53300" && this.#connections.size > 0;
    if (error && connection.address === this.#last && !isThere) this.#doubt();
  }

  #doubt(): void {
    this.#doubts += 1;
    void this.#searchUntilFound();
  }

  async #searchUntilFound(): Promise<void> {
    if (this.#isSearching) return;
    this.#isSearching = true;
    while (this.#isInDoubt && this.#connections.size > 0) {
      await this.locate().catch(() => undefined);
      await delay(searchPauseMs * (0.5 + Math.random()), undefined, { ref: false });
    }
    this.#isSearching = false;
  }

  #recordTimeline(state: ReplicationState): void {
    this.#timelines.record(state.cluster, newestKnownTo(state));
  }

  get #known(): Known {
    return { cluster: this.#cluster, timelines: this.#timelines.highest };
  }

  async #find(): Promise<Address> {
    const doubts = this.#doubts;
    const from = performance.now();
    const { results, choice } = await this.#probeAll();
    this.#warnAboutHosts(choice);
    if (!choice.primary) throw this.#failure(results, choice);
    await this.#othersHaveLeft(results, choice.primary);
    const { address, state } = choice.primary;
    const { timeline = 0 } = state;
    if (timeline < highest({ ...this.#known, cluster: state.cluster }))
      throw noPrimary(`${nameOf(address)} was the primary, and there is a newer one`);
    if (address !== this.#last || timeline !== this.#timeline)
      this.#logger?.info({ primary: nameOf(address), timeline }, "The primary of the database was found");
    for (const [host, at] of this.#away) if (at < from) this.#away.delete(host);
    this.#foundAt = performance.now();
    this.#last = address;
    this.#settled = doubts;
    this.#learn(state);
    return address;
  }

  /**
   * Probes all hosts, and chooses half a second after the first state; while that is uncertain, once all have a result.
   */
  async #probeAll(): Promise<{ readonly results: ProbeResults; readonly choice: Choice }> {
    const results = new Map<Address, ProbeResult>();
    const isOver = new AbortController();
    const firstState = Promise.withResolvers<void>();
    const all = Promise.all(
      this.#hosts.map(async (address) => {
        const result = await this.#probes.probeInSearch(address, isOver.signal);
        if (result && "error" in result && isAway(result.error)) this.#away.set(address, performance.now());
        if (!result || isOver.signal.aborted) return;
        results.set(address, result);
        if ("state" in result) firstState.resolve();
      }),
    );
    try {
      await Promise.race([all, firstState.promise.then(() => pause(otherHostsMs, isOver.signal))]);
      const choice = this.#choose(results);
      if (!choice.uncertain || results.size === this.#hosts.length) return { results, choice };
      await all;
      return { results, choice: this.#choose(results) };
    } finally {
      isOver.abort();
    }
  }

  #choose(results: ProbeResults): Choice {
    const hosts = this.#hosts.map((address) => ({
      address,
      result: results.get(address) ?? this.#lateResponse(address),
    }));
    const found = hosts.flatMap(({ result }) => (result && "state" in result ? [result] : []));
    const silent = hosts
      .filter(({ result }) => !result || ("error" in result && !isAway(result.error)))
      .map(({ address }) => ({ address, lastState: this.#probes.lastState(address) }));
    // Once every host has a result, a standby makes the choice certain also for a host that was away.
    const returned = results.size < this.#hosts.length ? new Set(this.#away.keys()) : new Set<Address>();
    return choosePrimary({ found, silent, returned }, this.#known, this.#last);
  }

  /** The state of a host that reported to be a primary after the last search found one. */
  #lateResponse(address: Address): HostState | undefined {
    const state = this.#probes.lastState(address, this.#foundAt);
    return state?.timeline === undefined ? undefined : { address, state };
  }

  /** Waits until no process uses a primary before this one. Only the results of this search prove that none does. */
  async #othersHaveLeft(results: ProbeResults, { address, state }: HostState): Promise<void> {
    const { cluster, timeline = 0 } = state;
    const isInUse = address === this.#last && timeline === this.#timeline;
    if (isInUse || timeline <= firstTimeline) return;
    const mayWrite = (host: Address) => {
      const result = results.get(host);
      if (host === address) return false;
      if (!result) return true;
      if ("error" in result) return !hasRefused(result.error);
      return result.state.timeline !== undefined && result.state.timeline < timeline;
    };
    const remainingMs = this.#timelines.firstKnownAt(cluster) + leaveMs - performance.now();
    if (remainingMs > 0 && this.#hosts.some(mayWrite)) await pause(remainingMs);
  }

  #learn({ cluster, timeline = 0 }: ReplicationState): void {
    this.#cluster = cluster;
    this.#timeline = timeline;
    this.#leaveOutdated();
  }

  /** Ends the connections to an outdated primary, whether or not the one of the newer timeline can be used yet. */
  readonly #leaveOutdated = (): void => {
    const newest = highest(this.#known);
    for (const connection of [...this.#connections]) {
      const { address, replicationState } = connection;
      if (address === this.#last && replicationState?.timeline === newest) continue;
      // A cancelled commit would become visible to processes that are still connected, though nobody has confirmed it.
      connection.destroyWithoutCancel(connectionLost("another server is the primary now"));
    }
    if (newest > this.#timeline && !this.#isInDoubt) this.#doubt();
  };

  /** Logs what should not be, once for as long as it lasts. */
  #warnAboutHosts({ primary, uncertain, possiblyNewer, roles, newest }: Choice): void {
    const withRole = (role: string) =>
      roles.filter((host) => host.role === role).map(({ address }) => nameOf(address));
    const [primaries, outdated, foreign] = [withRole("primary"), withRole("outdated"), withRole("foreign")];
    const silent = possiblyNewer.map(nameOf);
    const warning = JSON.stringify([primaries.length > 1 && primaries, outdated, foreign, silent]);
    if (warning === this.#lastWarning) return;
    this.#lastWarning = warning;
    const used = primary && nameOf(primary.address);
    if (uncertain)
      this.#logger?.warn(
        { withheld: nameOf(uncertain.address), timeline: newest, silent },
        "A primary is not used, as a host that does not say what it is may be a newer one",
      );
    if (primaries.length > 1)
      this.#logger?.warn(
        { primaries, used },
        "Several hosts are primaries of the same timeline; one is used",
      );
    if (outdated.length > 0)
      this.#logger?.warn(
        { outdated, timeline: newest, used },
        "A host takes writes on an old timeline, and is not used",
      );
    if (foreign.length > 0)
      this.#logger?.warn({ foreign, used }, "The hosts belong to different clusters; only one's are used");
  }

  /** The error of a search that found no primary, with what is known of each host. */
  #failure(results: ProbeResults, { roles, possiblyNewer }: Choice): Error {
    const errors = this.#hosts.flatMap((host) => {
      const result = results.get(host);
      return result && "error" in result ? [result] : [];
    });
    const descriptions = this.#hosts.map((host) => {
      const role = roles.find(({ address }) => address === host)?.role;
      const failed = errors.find(({ address }) => address === host);
      const what = role ? words[role] : failed ? `(${messageOf(failed.error)})` : "has not responded";
      return `${nameOf(host)} ${what}${possiblyNewer.includes(host) ? " and may be a newer primary" : ""}`;
    });
    // The error of a server is the better cause: it may just be starting, or have no connection left.
    const cause = errors.find(({ error }) => sqlState(error)) ?? (roles.length === 0 ? errors[0] : undefined);
    const reason =
      possiblyNewer.length > 0 ? "it is not certain which host is the primary" : "no host is the primary";
    return noPrimary(`${reason}: ${descriptions.join(", ")}`, cause?.error);
  }
}

const words: Readonly<Record<Role, string>> = {
  primary: "is the primary",
  standby: "is a standby",
  outdated: "writes an old timeline",
  foreign: "belongs to another cluster",
};

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** An error that means that the database is unavailable. */
function noPrimary(message: string, cause?: unknown): Error {
  return Object.assign(new Error(message, { cause }), { code: "CONNECTION_NO_PRIMARY" });
}
