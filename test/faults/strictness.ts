/**
 * Strictness: whatever becomes of one of two standbys, no process says "active" of a token whose end was acknowledged.
 * Tokens that both standbys have are ended by every request that ends one, before a state begins, as it begins, while it
 * lasts and as it ends. Each is looked at as soon as its end is acknowledged, at another process, and later again and again.
 */
import { randomInt } from "node:crypto";
import { setTimeout } from "node:timers/promises";
import { say } from "../../scripts/command.ts";
import { commitsWaitFor, hasCaughtUp, isReadBy, until } from "../support/postgresql/standby.ts";
import { columns } from "../support/table.ts";
import { Caller, type Ending, serverOf } from "./endings.ts";
import type { Fault, Scene } from "./fault.ts";
import { authorizationOf, HttpClient } from "./http-client.ts";
import { Looks } from "./looks.ts";
import { type StandbyState, standbyStates } from "./standbys.ts";
import { Figures, type LookKind } from "./strictness-figures.ts";
import type { Member, World } from "./world.ts";

/** How often each state is played, and how many tokens end each time. */
const sizes = { full: { rounds: 10, tokens: 168 }, short: { rounds: 1, tokens: 30 } };
/** Tokens of the client that is taken off the list once in each state. */
const formerTokens = 20;
/**
 * Requests at a time, to make tokens and to end them. While commits wait for six seconds, as many are refused at first:
 * less than half of those that are asked for while a state lasts, or the round proves little.
 */
const atOnce = 24;
/** How many look at what has ended, all the time. */
const lookers = 4;
/** Milliseconds between two looks of one of these. */
const lookEveryMs = 20;
/**
 * The shares of the tokens that end before the state begins, as it begins, once commits wait for the standby no more, and
 * as the state ends; the others while it lasts.
 */
const shares = { before: 0.1, asItBegins: 0.1, afterChange: 0.2, asItEnds: 0.2 };
/** Milliseconds after which somebody notices that commits wait for the standby: these in turn, a round each. */
const noticedMs = [0, 2_000, 4_000, 6_000];
/** How many looks that found an ended token active are printed, of each round. */
const shown = 10;

/** A token whose end was acknowledged. */
interface Ended {
  readonly way: Ending["way"] | "removal of the client";
  readonly token: string;
  readonly by: Member;
  /** When that was, by performance.now(). */
  readonly at: number;
}

/** Commits wait for both standbys, and all processes read from both. */
async function becomeHealthy({ admin, members, standbys }: World): Promise<void> {
  for (const standby of standbys) await hasCaughtUp(admin, standby.admin);
  await commitsWaitFor(
    admin,
    standbys.map(({ name }) => name),
  );
  await until("all processes read from both standbys", () =>
    members.every(({ process }) => standbys.every(({ address }) => isReadBy(process, address))),
  );
}

/** The list of clients, which the last process is started anew with. */
class Clients {
  readonly #world: World;
  #revision = 1;

  constructor(world: World) {
    this.#world = world;
  }

  /** @returns the process, once it is ready, which acknowledges the list */
  async list(...more: readonly "former"[]): Promise<Member> {
    const { members, clientList } = this.#world;
    const last = members.at(-1) ?? members[0];
    this.#revision += 1;
    last.isUp = false;
    await last.process.stop();
    await last.restart({
      OAUTH_SERVER_CLIENTS: clientList("application", "other", "guesser", ...more),
      OAUTH_SERVER_CLIENTS_REVISION: String(this.#revision),
    });
    return last;
  }
}

/** What all rounds have in common. */
interface Stage extends Scene {
  readonly caller: Caller;
  readonly looks: Looks;
  readonly clients: Clients;
}

/** A state, once. */
class Round {
  readonly #stage: Stage;
  readonly #state: StandbyState;
  readonly #figures: Figures;
  readonly #ended: Ended[] = [];
  /** Whether the state has begun, and does not end yet. */
  #isOn = false;
  /**
   * When commits ceased to wait for the standby, by performance.now(): Infinity while they wait for one that does not
   * confirm them, 0 where none is taken out.
   */
  #waitedUntil = 0;

  constructor(stage: Stage, state: StandbyState, figures: Figures) {
    this.#stage = stage;
    this.#state = state;
    this.#figures = figures;
  }

  /**
   * @param count of the tokens that end by a request each
   * @param noticedAfterMs until somebody notices that commits wait for the standby
   * @param isClientRemoved whether a client is taken off the list, too
   */
  async play(count: number, noticedAfterMs: number, isClientRemoved: boolean): Promise<void> {
    const { world, caller, clients } = this.#stage;
    const stock = await sideBySide(count, (index) => caller.newEnding(index));
    const former = await sideBySide(isClientRemoved ? formerTokens : 0, () =>
      caller.newTokenOfFormerClient(),
    );
    // What a standby does not have, it is not asked about.
    for (const standby of world.standbys) await hasCaughtUp(world.admin, standby.admin);
    const all = [...stock.map(({ token }) => token), ...former];
    await sideBySide(all.length, (index) => this.#expectActive(all[index] ?? ""));

    const over = new AbortController();
    const looking = sideBySide(lookers, () => this.#lookOn(over.signal));
    await this.#playState(stock, former, noticedAfterMs);
    await becomeHealthy(world);
    over.abort();
    await looking;
    // What it has may be active again.
    if (isClientRemoved) await clients.list("former");
  }

  async #playState(
    stock: readonly Ending[],
    former: readonly string[],
    noticedAfterMs: number,
  ): Promise<void> {
    const [, troubled] = this.#stage.world.standbys;
    if (!troubled) throw new Error("there are not two standbys");
    const place = (share: number) => Math.round(stock.length * share);
    const begin = place(shares.before);
    const within = begin + place(shares.asItBegins);
    const end = stock.length - place(shares.asItEnds);
    const change = end - place(shares.afterChange);
    await this.#endAll(stock.slice(0, begin));
    if (this.#state.takenOut === "before") {
      await this.#takeOut();
      this.#waitedUntil = performance.now();
    }
    // Some are under way when it begins, and when it ends.
    const first = this.#endAll(stock.slice(begin, within));
    const endState = await this.#state.begin(troubled);
    let last: Promise<void> | undefined;
    try {
      this.#isOn = true;
      const ending = Promise.all([first, this.#endAll(stock.slice(within, change))]);
      if (this.#state.takenOut === "afterwards") {
        this.#waitedUntil = Infinity;
        await setTimeout(noticedAfterMs);
        await this.#takeOut();
        this.#waitedUntil = performance.now();
      }
      const later = this.#endAll(stock.slice(change, end));
      if (former.length > 0) await this.#removeClientOf(former);
      await Promise.all([ending, later]);
      this.#isOn = false;
      last = this.#endAll(stock.slice(end));
    } finally {
      await endState();
    }
    await last;
  }

  async #endAll(endings: readonly Ending[]): Promise<void> {
    await sideBySide(endings.length, (index) => this.#end(endings[index]));
  }

  async #takeOut(): Promise<void> {
    const { admin, standbys } = this.#stage.world;
    await commitsWaitFor(
      admin,
      standbys.slice(0, 1).map(({ name }) => name),
    );
  }

  async #expectActive(token: string): Promise<void> {
    const { world, ledger, looks } = this.#stage;
    const { outcome, protocol } = await looks.at(serverOf(world), token);
    if (outcome !== "active" && outcome !== "refused")
      ledger.wrong.push(`a token that has not ended, over ${protocol}: ${outcome}`);
  }

  /** Ends a token, and looks at it at once, at another process. */
  async #end(ending: Ending | undefined): Promise<void> {
    if (!ending) return;
    const { world, ledger, caller } = this.#stage;
    const { way, token, call, acknowledged } = ending;
    const isWithin = this.#isOn;
    const asked = await caller.ask(call);
    const { response, by, refused } = asked;
    const one = { way, token, by, at: performance.now() };
    if (!acknowledged.includes(response.status)) {
      const after = refused > 0 ? ` after ${refused} refusals` : "";
      ledger.wrong.push(`${way}: ${response.status}${after} ${JSON.stringify(response.body)}`);
      return;
    }
    this.#figures.countEnding(asked, isWithin, this.#waitedUntil);
    if (way === "reuse of a refresh token") ledger.reused.add(authorizationOf(token));
    await this.#look("first", one, serverOf(world, by));
    this.#ended.push(one);
  }

  async #removeClientOf(tokens: readonly string[]): Promise<void> {
    const by = await this.#stage.clients.list();
    const at = performance.now();
    const all = tokens.map((token) => ({ way: "removal of the client" as const, token, by, at }));
    this.#figures.ended += all.length;
    await Promise.all(all.map((one) => this.#look("first", one, serverOf(this.#stage.world, by))));
    this.#ended.push(...all);
  }

  /** Looks at what has ended, until it is over. */
  async #lookOn(over: AbortSignal): Promise<void> {
    while (!over.aborted) {
      const one = this.#ended[randomInt(this.#ended.length + 1)];
      if (one) await this.#look("later", one, serverOf(this.#stage.world));
      await setTimeout(lookEveryMs);
    }
  }

  async #look(kind: LookKind, { way, token, by, at }: Ended, server: Member): Promise<void> {
    const figures = this.#figures;
    const [askedAt, isWithin] = [performance.now(), this.#isOn];
    const { outcome, protocol } = await this.#stage.looks.at(server, token);
    figures.countLook(kind, outcome, isWithin);
    if (outcome === "inactive" || outcome === "refused") return;
    const after = `asked ${(askedAt - at).toFixed(1)} ms after the ${way} was acknowledged by ${by.name}`;
    const what = `${this.#state.name}: ${server.name} over ${protocol}: ${outcome}, ${after}`;
    this.#stage.ledger.wrong.push(what);
    if (figures.active <= shown) say(`       ${what}`);
  }
}

/** Does so many things, several at a time. @returns the results in their order */
async function sideBySide<T>(count: number, work: (index: number) => Promise<T>): Promise<T[]> {
  const results: T[] = [];
  let next = 0;
  async function some(): Promise<void> {
    while (next < count) {
      const index = next++;
      results[index] = await work(index);
    }
  }
  await Promise.all(Array.from({ length: atOnce }, some));
  return results;
}

export const strictness: Fault = {
  name: "strictness",
  what: "10,000 tokens end while one of two standbys is cut off, does not replay, stands still, is promoted or stale",
  short: false,
  concerns: "everybody",
  world: () => ({ servers: [{}, {}, {}, {}], standbys: ["standby_1", "standby_2"] }),
  async play(scene) {
    const { world, isShort } = scene;
    const { rounds, tokens } = isShort ? sizes.short : sizes.full;
    const http = new HttpClient();
    const stage: Stage = {
      ...scene,
      caller: new Caller(world, http),
      looks: new Looks(world),
      clients: new Clients(world),
    };
    const rows: (readonly string[])[] = [Figures.heads];
    await becomeHealthy(world);
    // The first state is the healthy one.
    let usualMs = 0;
    for (const state of standbyStates) {
      const played: Figures[] = [];
      for (let round = 0; round < rounds; round += 1) {
        const figures = new Figures();
        const noticedAfterMs = noticedMs[round % noticedMs.length] ?? 0;
        await new Round(stage, state, figures).play(tokens, noticedAfterMs, round === 0);
        played.push(figures);
        if (state.takenOut === "never") usualMs = Math.max(usualMs, figures.slowestMs);
        const name = `${state.name}, round ${round + 1}`;
        for (const objection of figures.objections(usualMs)) scene.ledger.wrong.push(`${name}: ${objection}`);
        say(`       ${name}: ${figures.ended} ended, ${figures.active} active afterwards`);
      }
      rows.push(Figures.row(state.name, played));
    }
    http.close();
    for (const line of columns(rows)) say(`       ${line}`);
  },
};
