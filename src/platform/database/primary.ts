/**
 * The primary among several hosts, of which one after the other may be it. Connections go to the host that was found
 * last. As soon as one of them fails, all hosts are asked at once, and choose-primary.ts decides; what is still open to
 * another host, or began on an earlier timeline, is then ended. While connections are open, the other hosts are asked
 * all the time: a primary that another one has replaced may go on as if nothing had happened. For as long as a process
 * may not have noticed, nobody uses its successor, so that what is acknowledged there is not denied here.
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
  newestOf,
  type Role,
  roleOf,
  type Standing,
} from "./choose-primary.ts";
import { type Connection, connectionLost, type Result } from "./connection.ts";
import type { Hosts } from "./hosts.ts";
import { hasRefused, isAway, Questions, type Reply } from "./questions.ts";
import type { Address } from "./settings.ts";
import { askStanding } from "./standing.ts";
import type { Timelines } from "./timelines.ts";
import { Watch } from "./watch.ts";

/**
 * Milliseconds that the other hosts have once one has responded, so that one that is gone does not hold up the rest.
 * It does where it may be a newer primary than the one that was found.
 */
const patienceMs = 500;
/** Milliseconds between two searches that nobody waits for. */
const searchPauseMs = 500;
/**
 * Milliseconds after which every process that reaches a new primary has left the old one: by its next look, which begins
 * within 1.05 seconds (watch.ts) and takes two at most.
 */
const leftMs = 3_250;
/** The timeline of a cluster in which nobody was ever promoted. */
const firstTimeline = 1;
/** Milliseconds between two doubts because of a read-only transaction. */
const readOnlyPauseMs = 5_000;

interface Dependencies {
  readonly hosts: readonly Address[];
  /** Those of which this process knows: whoever holds connections adds to them. */
  readonly timelines: Timelines;
  /** Asks a host what it is, on a connection of its own, which takes two seconds at most. */
  readonly ask: (address: Address) => Promise<Standing>;
  /** Undefined in commands, which end before the primary changes. */
  readonly logger: Readonly<Record<"info" | "warn", (fields: object, message: string) => void>> | undefined;
}

type Replies = ReadonlyMap<Address, Reply>;

const nameOf = ({ host, port }: Address) => `${host}:${port}`;

export class Primary implements Hosts {
  readonly #hosts: readonly Address[];
  readonly #logger: Dependencies["logger"];
  readonly #connections = new Set<Connection>();
  readonly #watches: readonly Watch[];
  readonly #questions: Questions;
  readonly #timelines: Timelines;
  /** Of the primary that was used last. */
  #cluster: string | undefined;
  #timeline = 0;
  #last: Address | undefined;
  /** When a search last found it, by performance.now(). */
  #foundAt = 0;
  /** Hosts to which a search, or who holds connections, got none since that one began: when, by performance.now(). */
  readonly #away = new Map<Address, number>();
  /** When a read-only transaction raises doubts again, by performance.now(). */
  #readOnlyUntil = 0;
  /** How often there was a reason to search, */
  #doubts = 1;
  /** and how many of them there were before the last search that found the primary. */
  #settled = 0;
  #isSearching = false;
  #search: Promise<Address> | undefined;
  /** The last complaint, which is not repeated. */
  #said = "";

  constructor({ hosts, timelines, ask, logger }: Dependencies) {
    this.#hosts = hosts;
    this.#timelines = timelines;
    this.#logger = logger;
    this.#questions = new Questions(ask, (standing) => this.#hear(standing));
    this.#watches = hosts.map(
      (address) =>
        new Watch(
          async () => address !== this.#last && this.#questions.ask(address),
          () => this.#connections.size > 0,
        ),
    );
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
    this.#hear(standing);
    const role = roleOf(standing, this.#known);
    if (role !== "primary") throw noPrimary(`the server ${words[role]}`);
    this.#learn(standing);
    return standing;
  }

  /** It takes no writes, or no standby confirms its commits, perhaps as they follow another primary. */
  isDoubtful(error: unknown): boolean {
    if (codeOf(error) === "CONNECTION_UNCONFIRMED") return true;
    if (sqlState(error) !== "25006") return false;
    // A primary may be set to read-only transactions. Each write meets that, and each search would find it again.
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
    // They look for a primary of a later timeline. A host that hangs, or takes its time, delays no look at another.
    for (const watch of this.#watches) void watch.start();
  }

  closed(connection: Connection, error: Error | undefined): void {
    this.#connections.delete(connection);
    if (this.#connections.size === 0) this.#timelines.unsubscribe(this.#leaveOutdated);
    if (isAway(error)) {
      this.#away.set(connection.address, performance.now());
      this.#questions.gone(connection.address);
    }
    // 53300: it has no connection left, which says that it is there. Without any, nobody would hear of its successor.
    const isThere = sqlState(error) === "53300" && this.#connections.size > 0;
    if (error && connection.address === this.#last && !isThere) this.#doubt();
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

  #hear(standing: Standing): void {
    this.#timelines.hear(standing.cluster, newestOf(standing));
  }

  get #known(): Known {
    return { cluster: this.#cluster, timelines: this.#timelines.highest };
  }

  async #find(): Promise<Address> {
    const doubts = this.#doubts;
    const from = performance.now();
    const { replies, choice } = await this.#askAll();
    this.#complain(choice);
    if (!choice.primary) throw this.#failure(replies, choice);
    await this.#othersHaveLeft(replies, choice.primary);
    const { address, standing } = choice.primary;
    const { timeline = 0 } = standing;
    if (timeline < highest({ ...this.#known, cluster: standing.cluster }))
      throw noPrimary(`${nameOf(address)} was the primary, and there is a newer one`);
    if (address !== this.#last || timeline !== this.#timeline)
      this.#logger?.info({ primary: nameOf(address), timeline }, "The primary of the database was found");
    for (const [host, at] of this.#away) if (at < from) this.#away.delete(host);
    this.#foundAt = performance.now();
    this.#last = address;
    this.#settled = doubts;
    this.#learn(standing);
    return address;
  }

  /**
   * Asks all hosts. Those that take longer than the first one have no part in the choice, unless it hangs on them:
   * then it is made once they have responded, or it is certain that they do not. A primary that always takes longer is
   * found by what it said to a search before.
   */
  async #askAll(): Promise<{ readonly replies: Replies; readonly choice: Choice }> {
    const replies = new Map<Address, Reply>();
    const isOver = new AbortController();
    const told = Promise.withResolvers<void>();
    const all = Promise.all(
      this.#hosts.map(async (address) => {
        const reply = await this.#questions.askInSearch(address, isOver.signal);
        if (reply && "error" in reply && isAway(reply.error)) this.#away.set(address, performance.now());
        if (!reply || isOver.signal.aborted) return;
        replies.set(address, reply);
        if ("standing" in reply) told.resolve();
      }),
    );
    try {
      await Promise.race([all, told.promise.then(() => pause(patienceMs, isOver.signal))]);
      const soon = this.#choose(replies);
      if (!soon.withheld || replies.size === this.#hosts.length) return { replies, choice: soon };
      await all;
      return { replies, choice: this.#choose(replies) };
    } finally {
      isOver.abort();
    }
  }

  #choose(replies: Replies): Choice {
    const told = this.#hosts.map((address) => ({
      address,
      reply: replies.get(address) ?? this.#lateWord(address),
    }));
    const found = told.flatMap(({ reply }) => (reply && "standing" in reply ? [reply] : []));
    const silent = told
      .filter(({ reply }) => !reply || ("error" in reply && !isAway(reply.error)))
      .map(({ address }) => ({ address, before: this.#questions.before(address) }));
    // Once nobody is left to respond, a standby's word counts again: a host that hangs keeps nobody waiting for ever.
    const returned = replies.size < this.#hosts.length ? new Set(this.#away.keys()) : new Set<Address>();
    return choosePrimary({ found, silent, returned }, this.#known, this.#last);
  }

  /** That the host is a primary, if it has said so since one was found. Whoever connects to it asks it again. */
  #lateWord(address: Address): Found | undefined {
    const standing = this.#questions.before(address, this.#foundAt);
    return standing?.timeline === undefined ? undefined : { address, standing };
  }

  /**
   * Waits until nobody uses a primary before this one, where any host may be that: what this process does not reach,
   * others may. What was said to a search before does not count: a host that refused may be back.
   */
  async #othersHaveLeft(replies: Replies, { address, standing }: Found): Promise<void> {
    const { cluster, timeline = 0 } = standing;
    const isInUse = address === this.#last && timeline === this.#timeline;
    if (isInUse || timeline <= firstTimeline) return;
    const mayWrite = (host: Address) => {
      const reply = replies.get(host);
      if (host === address) return false;
      if (!reply) return true;
      if ("error" in reply) return !hasRefused(reply.error);
      return reply.standing.timeline !== undefined && reply.standing.timeline < timeline;
    };
    const lastsMs = this.#timelines.heardAt(cluster) + leftMs - performance.now();
    if (lastsMs > 0 && this.#hosts.some(mayWrite)) await pause(lastsMs);
  }

  #learn({ cluster, timeline = 0 }: Standing): void {
    this.#cluster = cluster;
    this.#timeline = timeline;
    this.#leaveOutdated();
  }

  /** Whether or not the primary of a later timeline can be used yet, the one before it cannot. */
  readonly #leaveOutdated = (): void => {
    const newest = highest(this.#known);
    for (const connection of [...this.#connections]) {
      const { address, standing } = connection;
      if (address === this.#last && standing?.timeline === newest) continue;
      // What is in flight is not cancelled: a commit that waits for standbys would be seen by others who are still here,
      // and acknowledged by them, though nobody has confirmed it.
      connection.leave(connectionLost("another server is the primary now"));
    }
    if (newest > this.#timeline && !this.#isInDoubt) this.#doubt();
  };

  /** Says what should not be, once for as long as it lasts. */
  #complain({ primary, withheld, rivals, roles, newest }: Choice): void {
    const named = (role: string) =>
      roles.filter((one) => one.role === role).map(({ address }) => nameOf(address));
    const [primaries, outdated, foreign] = [named("primary"), named("outdated"), named("foreign")];
    const silent = rivals.map(nameOf);
    const said = JSON.stringify([primaries.length > 1 && primaries, outdated, foreign, silent]);
    if (said === this.#said) return;
    this.#said = said;
    const used = primary && nameOf(primary.address);
    if (withheld)
      this.#logger?.warn(
        { withheld: nameOf(withheld.address), timeline: newest, silent },
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

  #failure(replies: Replies, { roles, rivals }: Choice): Error {
    const errors = this.#hosts.flatMap((host) => {
      const reply = replies.get(host);
      return reply && "error" in reply ? [reply] : [];
    });
    const told = this.#hosts.map((host) => {
      const role = roles.find(({ address }) => address === host)?.role;
      const failed = errors.find(({ address }) => address === host);
      const said = role ? words[role] : failed ? `(${messageOf(failed.error)})` : "has not responded";
      return `${nameOf(host)} ${said}${rivals.includes(host) ? " and may be a newer primary" : ""}`;
    });
    // What a server itself has said comes first: it may just be starting, or have no connection left.
    const said = errors.find(({ error }) => sqlState(error)) ?? (roles.length === 0 ? errors[0] : undefined);
    const what = rivals.length > 0 ? "it is not certain which host is the primary" : "no host is the primary";
    return noPrimary(`${what}: ${told.join(", ")}`, said?.error);
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
