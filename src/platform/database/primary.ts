/**
 * The primary among several hosts, of which one after the other may be it. Connections go to the host that was found
 * last. As soon as one of them fails, all hosts are asked at once, and choose-primary.ts decides; what is still open to
 * another host, or began on an earlier timeline, is then ended. While connections are open, the other hosts are asked
 * all the time: a primary that another one has replaced may go on as if nothing had happened.
 */
import { setTimeout as delay } from "node:timers/promises";
import { sqlState } from "../base/database-errors.ts";
import { codeOf } from "../base/error-code.ts";
import { pause } from "../base/loop.ts";
import {
  type Choice,
  choosePrimary,
  type Found,
  highest,
  type Known,
  type Role,
  roleOf,
  type Standing,
} from "./choose-primary.ts";
import { type Connection, connectionLost, type Result } from "./connection.ts";
import type { Hosts } from "./hosts.ts";
import type { Address } from "./settings.ts";
import { askStanding } from "./standing.ts";

/** Milliseconds that the other hosts have once one has responded: one that is gone does not hold up the rest. */
const patienceMs = 500;
/** Milliseconds between two looks at the other hosts. */
const watchMs = 2_000;
/** Milliseconds between two searches that nobody waits for. */
const searchPauseMs = 500;

interface Dependencies {
  readonly hosts: readonly Address[];
  /** The highest timeline that this process has seen of each cluster: whoever holds connections adds to it. */
  readonly timelines: Map<string, number>;
  /** Asks a host what it is, on a connection of its own, which takes a few seconds at most. */
  readonly ask: (address: Address) => Promise<Standing>;
  /** Undefined in commands, which end before the primary changes. */
  readonly logger: Readonly<Record<"info" | "warn", (fields: object, message: string) => void>> | undefined;
}

/** What became of asking a host. */
type Reply = Found | { readonly address: Address; readonly error: unknown };

const nameOf = ({ host, port }: Address) => `${host}:${port}`;

export class Primary implements Hosts {
  readonly #hosts: readonly Address[];
  readonly #ask: (address: Address) => Promise<Reply>;
  readonly #logger: Dependencies["logger"];
  readonly #connections = new Set<Connection>();
  /** Questions without a reply, and replies that came too late for the search before. */
  readonly #asked = new Map<Address, Promise<Reply>>();
  readonly #timelines: Map<string, number>;
  /** Of the primary that was used last. */
  #cluster: string | undefined;
  #timeline = 0;
  #last: Address | undefined;
  /** How often there was a reason to search, */
  #doubts = 1;
  /** and how many of them there were before the last search that found the primary. */
  #settled = 0;
  #isWatching = false;
  #isSearching = false;
  #search: Promise<Address> | undefined;
  /** The last complaint, which is not repeated. */
  #said = "";

  constructor({ hosts, timelines, ask, logger }: Dependencies) {
    this.#hosts = hosts;
    this.#timelines = timelines;
    this.#ask = (address) =>
      ask(address).then(
        (standing) => ({ address, standing }),
        (error: unknown) => ({ address, error }),
      );
    this.#logger = logger;
  }

  get #isInDoubt(): boolean {
    return this.#doubts > this.#settled;
  }

  /** Those who want to know at the same time share a search. */
  async locate(): Promise<Address> {
    if (this.#last && !this.#isInDoubt) return this.#last;
    this.#search ??= this.#find().finally(() => {
      this.#search = undefined;
    });
    return this.#search;
  }

  async check(query: (text: string) => Promise<Result>): Promise<Standing> {
    const standing = await askStanding(query);
    const role = roleOf(standing, this.#known);
    if (role !== "primary") throw noPrimary(`the server ${words[role]}`);
    this.#learn(standing);
    return standing;
  }

  /** It takes no writes, or no standby confirms its commits, perhaps as they follow another primary. */
  isDoubtful(error: unknown): boolean {
    return sqlState(error) === "25006" || codeOf(error) === "CONNECTION_UNCONFIRMED";
  }

  opened(connection: Connection): void {
    if (connection.isClosed) return;
    this.#connections.add(connection);
    this.#endOutdated();
    void this.#watch();
  }

  closed(connection: Connection, error: Error | undefined): void {
    this.#connections.delete(connection);
    // 53300: it has no connection left, which says that it is there.
    if (error && connection.address === this.#last && sqlState(error) !== "53300") this.#doubt();
  }

  #doubt(): void {
    this.#doubts += 1;
    // Those that have connections need none, and would not search.
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

  /** Looks for a primary of a later timeline, for as long as there are connections. */
  async #watch(): Promise<void> {
    if (this.#isWatching) return;
    this.#isWatching = true;
    while (this.#connections.size > 0) {
      await delay(watchMs * (0.75 + Math.random() / 2), undefined, { ref: false });
      const others = this.#isInDoubt ? [] : this.#hosts.filter((address) => address !== this.#last);
      await Promise.all(others.map((address) => this.#lookAt(address)));
    }
    this.#isWatching = false;
  }

  async #lookAt(address: Address): Promise<void> {
    const reply = await this.#ask(address);
    if (!("standing" in reply)) return;
    const { cluster, timeline = 0 } = reply.standing;
    if (cluster !== this.#cluster || timeline <= highest(this.#known)) return;
    // Whether or not it can be used yet, the one before it cannot.
    this.#timelines.set(cluster, timeline);
    this.#doubt();
    this.#endOutdated();
  }

  get #known(): Known {
    return { cluster: this.#cluster, timelines: this.#timelines };
  }

  async #find(): Promise<Address> {
    const doubts = this.#doubts;
    const replies = await this.#askAll();
    const found = replies.filter((reply) => "standing" in reply);
    const choice = choosePrimary(found, this.#known, this.#last);
    this.#complain(choice);
    if (!choice.primary) {
      this.#endOutdated();
      throw this.#failure(replies, choice);
    }
    const { address, standing } = choice.primary;
    const { timeline } = standing;
    if (address !== this.#last || timeline !== this.#timeline)
      this.#logger?.info({ primary: nameOf(address), timeline }, "The primary of the database was found");
    this.#asked.clear();
    this.#last = address;
    this.#settled = doubts;
    this.#learn(standing);
    return address;
  }

  /** Asks all hosts. @returns their replies, in the order of the list, without those that take too long */
  async #askAll(): Promise<readonly Reply[]> {
    const replies = new Map<Address, Reply>();
    const isOver = new AbortController();
    const all = this.#hosts.map(async (address) => {
      const asked = this.#asked.get(address) ?? this.#ask(address);
      this.#asked.set(address, asked);
      const reply = await asked;
      if (isOver.signal.aborted) return;
      this.#asked.delete(address);
      replies.set(address, reply);
      if ("standing" in reply) void pause(patienceMs, isOver.signal).then(() => isOver.abort());
    });
    const aborted = Promise.withResolvers<void>();
    isOver.signal.addEventListener("abort", () => aborted.resolve());
    await Promise.race([Promise.all(all), aborted.promise]);
    isOver.abort();
    return this.#hosts.flatMap((address) => replies.get(address) ?? []);
  }

  #learn({ cluster, timeline = 0 }: Standing): void {
    this.#cluster = cluster;
    this.#timeline = timeline;
    this.#timelines.set(cluster, timeline);
    this.#endOutdated();
  }

  #endOutdated(): void {
    for (const connection of [...this.#connections]) {
      const { address, standing } = connection;
      if (address === this.#last && standing?.timeline === highest(this.#known)) continue;
      connection.abandon(connectionLost("another server is the primary now"));
    }
  }

  /** Says what should not be, once for as long as it lasts. */
  #complain({ primary, roles }: Choice): void {
    const named = (role: string) =>
      roles.filter((one) => one.role === role).map(({ address }) => nameOf(address));
    const [primaries, outdated, foreign] = [named("primary"), named("outdated"), named("foreign")];
    const said = JSON.stringify([primaries.length > 1 && primaries, outdated, foreign]);
    if (said === this.#said) return;
    this.#said = said;
    const used = primary && nameOf(primary.address);
    if (primaries.length > 1)
      this.#logger?.warn(
        { primaries, used },
        "Several hosts are primaries of the same timeline; one is used",
      );
    if (outdated.length > 0)
      this.#logger?.warn({ outdated, used }, "A host takes writes on an old timeline, and is not used");
    if (foreign.length > 0)
      this.#logger?.warn({ foreign, used }, "The hosts belong to different clusters; only one's are used");
  }

  #failure(replies: readonly Reply[], { roles }: Choice): Error {
    const errors = replies.flatMap((reply) => ("error" in reply ? [reply] : []));
    const told = this.#hosts.map((host) => {
      const role = roles.find(({ address }) => address === host)?.role;
      const failed = errors.find(({ address }) => address === host);
      return `${nameOf(host)} ${role ? words[role] : failed ? `(${messageOf(failed.error)})` : "has not responded"}`;
    });
    // What a server itself has said comes first: it may just be starting, or have no connection left.
    const said = errors.find(({ error }) => sqlState(error)) ?? (roles.length === 0 ? errors[0] : undefined);
    return noPrimary(`no host is the primary: ${told.join(", ")}`, said?.error);
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
