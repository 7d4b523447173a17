/**
 * Compares three things when all is over: what the fakes accepted, what the service's tables say, and what the harness
 * wrote down itself. What is wrong is a red line.
 */
import type { Repeat } from "../../src/development/provider-fakes/ledger.ts";
import { messageId } from "../../src/push/delivery/tally.ts";
import type { LedgerEntry, Provider } from "./fakes.ts";
import type { LagAt } from "./lag.ts";
import { explanation } from "./repeats.ts";
import type { Played } from "./troubles.ts";
import type { Sent } from "./work.ts";
import { maxPerSecond } from "./world.ts";

export interface Verdict {
  readonly messages: number;
  /** Messages that arrived again, by what explains it. */
  readonly repeats: ReadonlyMap<string, number>;
  /** Most messages to one provider within a second. */
  readonly peakPerSecond: number;
  /** The longest time after the answer to a pause or cancelling after which a message arrived; milliseconds. */
  readonly latestAfterStop: number;
  /** What is wrong, by kind: how often, and the first of it in words. */
  readonly red: ReadonlyMap<string, { count: number; readonly first: string[] }>;
}

/** What was played meanwhile, and how late the machine was. */
export interface Circumstances {
  readonly played: readonly Played[];
  readonly lagAt: LagAt;
  /** Milliseconds that the machine was late at most. */
  readonly longestLagMs: number;
}

export interface Device {
  readonly id: number;
  readonly userId: string;
  readonly provider: Provider;
  /** What the ledger knows it by. */
  readonly token: string;
  readonly utcOffset: number;
  readonly isHealthy: boolean;
  /** Each of its messages becomes a dead letter at once, until the project has what it lacks. */
  readonly isBlocked: boolean;
  readonly isDeleted: boolean;
  /** It was there before the first notification was sent. */
  readonly wasFirst: boolean;
}

/** What the tables say of a notification. */
export interface Account {
  readonly planned: number;
  readonly sent: number;
  readonly failed: number;
  readonly dropped: number;
  /** Devices of dead letters. */
  readonly dead: ReadonlySet<number>;
  readonly isCancelled: boolean;
  /** The devices that it was planned for, as triggers have written them down. */
  readonly devices: readonly number[];
  /** Users whose history has no entry of it, and should, or the reverse. */
  readonly historyWrong: number;
}

const isFor = ({ users, utcOffsets }: Sent, { userId, utcOffset }: Device): boolean =>
  users ? users.includes(userId) : utcOffsets.includes(utcOffset);

type LedgerMessage = LedgerEntry["messages"][number];

/**
 * Milliseconds after the answer to a pause or cancelling in which messages may still arrive: a second until no process
 * begins one any more, and one for what had been handed to connections by then, as the machine is busy. So late as the
 * machine is, so late is what arrives noted.
 */
const stopMs = 2_000;
/** Milliseconds in which a process that stood still writes what it had begun. */
const thawMs = 500;
/**
 * Milliseconds by which messages may go out late, so that in one second come so many more. So late as the machine is, so
 * late the fakes count what has arrived.
 */
const lateMs = 500;
const shown = 5;

export const redKinds = [
  "lost",
  "planned twice",
  "not in the audience",
  "twice",
  "under another id",
  "after a stop",
  "counted wrongly",
  "history wrong",
  "given up",
  "faster than the limit",
] as const;
type RedKind = (typeof redKinds)[number];

/** Is told everything, messages before accounts, and then has a verdict. */
export class Judge {
  readonly #byToken: ReadonlyMap<string, Device>;
  readonly #byId: ReadonlyMap<number, Device>;
  readonly #bySend: ReadonlyMap<string, Sent>;
  /** Devices that got a notification, by its id. */
  readonly #got: ReadonlyMap<string, Set<number>>;
  readonly #circumstances: Circumstances;
  readonly #freezes: readonly Played[];
  readonly #repeats = new Map<string, number>();
  readonly #red = new Map<string, { count: number; first: string[] }>();
  #messages = 0;
  #peakPerSecond = 0;
  #latestAfterStop = 0;

  constructor(devices: readonly Device[], sent: readonly Sent[], circumstances: Circumstances) {
    this.#byToken = new Map(devices.map((device) => [`${device.provider} ${device.token}`, device]));
    this.#byId = new Map(devices.map((device) => [device.id, device]));
    this.#bySend = new Map(sent.map((one) => [one.id, one]));
    this.#got = new Map(sent.map(({ id }) => [id, new Set()]));
    this.#circumstances = circumstances;
    this.#freezes = circumstances.played.filter(({ trouble }) => trouble.breaks === "time");
  }

  /** A message that a fake has accepted, however often. */
  message(provider: Provider, token: string, message: LedgerMessage): void {
    this.#messages += message.count;
    const device = this.#byToken.get(`${provider} ${token}`);
    const one = this.#bySend.get(message.collapseId ?? "");
    if (!device || !one) {
      this.#mark("not in the audience", `${provider} ${token}: ${message.collapseId}`);
      return;
    }
    const what = `${one.id} to device ${device.id}`;
    if (!isFor(one, device)) this.#mark("not in the audience", what);
    if (message.messageId !== messageId(one.id, device.id)) this.#mark("under another id", what);
    this.#got.get(one.id)?.add(device.id);
    this.#checkStops(one, message.firstAt, what);
    if (message.count > 1) this.#checkStops(one, message.lastAt, what);
  }

  repeat(provider: Provider, repeat: Repeat): void {
    const { played, lagAt } = this.#circumstances;
    const why = explanation(provider, repeat, played, lagAt);
    if (why !== undefined) {
      this.#repeats.set(why, (this.#repeats.get(why) ?? 0) + 1);
      return;
    }
    const { at, token, collapseId, before } = repeat;
    const times = [before.at, before.answeredAt, before.endedAt, at].map((time) => time && iso(time));
    const story = before.isPending ? "came while its sender waited for the answer" : "came";
    this.#mark(
      "twice",
      `${collapseId} to ${token}: came, was answered, lost its connection, ${story}: ${times}`,
    );
  }

  account(one: Sent, account: Account): void {
    const accepted = this.#got.get(one.id) ?? new Set();
    const { dead, isCancelled, historyWrong } = account;
    const planned = new Set(account.devices);
    if (planned.size !== account.planned)
      this.#mark("planned twice", `${one.id}: ${account.planned} planned, ${planned.size} devices`);
    for (const id of accepted)
      if (!planned.has(id)) this.#mark("not in the audience", `${one.id} to device ${id}`);
    // Others are given up after an hour of failures, or if their chunk fails each time: neither happens in such a run.
    const givenUp = [...dead].filter((id) => !this.#byId.get(id)?.isBlocked);
    if (givenUp.length > 0) this.#mark("given up", `${one.id}: ${givenUp.length} devices`);
    if (!isCancelled) this.#checkLost(one, planned, accepted, dead);
    const devices = account.devices.flatMap((id) => this.#byId.get(id) ?? []);
    for (const problem of countsWrong(account, devices, accepted)) {
      const figures = JSON.stringify({ ...account, dead: dead.size, devices: planned.size });
      this.#mark("counted wrongly", `${one.id}: ${problem}; ${figures}`);
    }
    if (historyWrong > 0) this.#mark("history wrong", `${one.id}: of ${historyWrong} users`);
  }

  /** Most messages to a provider within a second. */
  peak(provider: string, peakPerSecond: number): void {
    this.#peakPerSecond = Math.max(this.#peakPerSecond, peakPerSecond);
    const { longestLagMs } = this.#circumstances;
    if (peakPerSecond > maxPerSecond * (1 + (lateMs + longestLagMs) / 1_000))
      this.#mark("faster than the limit", `${provider}: ${peakPerSecond} within a second`);
  }

  verdict(): Verdict {
    return {
      messages: this.#messages,
      repeats: this.#repeats,
      peakPerSecond: this.#peakPerSecond,
      latestAfterStop: this.#latestAfterStop,
      red: this.#red,
    };
  }

  #mark(kind: RedKind, what: string): void {
    const line = this.#red.get(kind) ?? { count: 0, first: [] };
    line.count += 1;
    if (line.first.length < shown) line.first.push(what);
    this.#red.set(kind, line);
  }

  #checkStops(one: Sent, at: number, what: string): void {
    const { lagAt } = this.#circumstances;
    const stops = one.cancelledAt === undefined ? [] : [{ from: one.cancelledAt, to: Infinity }];
    for (const { from, to } of [...one.pauses, ...stops]) {
      if (at < from || at >= to || this.#isThawed(at, from)) continue;
      const after = at - from;
      this.#latestAfterStop = Math.max(this.#latestAfterStop, after);
      if (after > stopMs && after > stopMs + lagAt(at))
        this.#mark("after a stop", `${what}: ${after} ms after ${iso(from)}`);
    }
  }

  /** Whether it may have been begun before the stop by a process that stood still, and was written when that went on. */
  #isThawed(at: number, from: number): boolean {
    const latestMs = thawMs + this.#circumstances.lagAt(at);
    return this.#freezes.some(
      ({ startedAt, endedAt }) => startedAt <= from + stopMs && at >= endedAt && at <= endedAt + latestMs,
    );
  }

  /** Of a notification that was not cancelled: each device that was there has its message, or its place in the counts. */
  #checkLost(
    one: Sent,
    planned: ReadonlySet<number>,
    accepted: ReadonlySet<number>,
    dead: ReadonlySet<number>,
  ): void {
    for (const device of this.#byId.values()) {
      const { id, provider, isHealthy, isDeleted, wasFirst } = device;
      if (isDeleted || (isHealthy ? accepted.has(id) || dead.has(id) : planned.has(id))) continue;
      if (planned.has(id)) this.#mark("lost", `${one.id} to device ${id} (${provider})`);
      else if (wasFirst && isFor(one, device))
        this.#mark("lost", `${one.id} was not planned for device ${id}`);
    }
  }
}

/** What of the counts the ledger and the devices' fates do not explain. */
function countsWrong(
  { planned, sent, failed, dropped, dead, isCancelled }: Account,
  devices: readonly Device[],
  accepted: ReadonlySet<number>,
): string[] {
  const left = planned - sent - failed - dropped;
  const unhealthy = devices.filter((device) => !device.isHealthy);
  const deleted = devices.filter(({ isDeleted }) => isDeleted);
  const certain = unhealthy.filter(({ id, isDeleted }) => !isDeleted && !dead.has(id) && !accepted.has(id));
  return [
    ...(left > dead.size ? [`${left - dead.size} are left`] : []),
    ...(sent > accepted.size ? [`only ${accepted.size} were accepted`] : []),
    // Broken connections are the fakes' first concern: they accept what they would have refused. And what was accepted
    // without an answer may have been dropped or given up afterwards.
    ...(accepted.size - sent > dropped + dead.size + failed ? [`${accepted.size} were accepted`] : []),
    ...(failed > unhealthy.length ? [`only ${unhealthy.length} had to fail`] : []),
    ...(!isCancelled && failed < certain.length ? [`${certain.length} had to fail`] : []),
    ...(!isCancelled && dropped > deleted.length ? [`only ${deleted.length} were deleted meanwhile`] : []),
  ];
}

const iso = (at: number) => new Date(at).toISOString();
