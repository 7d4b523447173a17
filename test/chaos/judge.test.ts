/** What chaos takes for wrong: each rule, and each excuse, once where it holds and once where it does not. */
import { describe, expect, it } from "vitest";
import { messageId } from "../../src/push/delivery/tally.ts";
import type { LedgerEntry, Provider } from "./fakes.ts";
import { type Account, type Device, Judge } from "./judge.ts";
import { type Played, troubles } from "./troubles.ts";
import type { Sent } from "./work.ts";
import { maxPerSecond } from "./world.ts";

type Changeable<T> = { -readonly [Key in keyof T]: T[Key] };
type Message = Changeable<LedgerEntry["messages"][number]> & { provider: Provider; token: string };

const start = Date.parse("2026-11-23T12:00:00Z");
const id = "019a9f00-0000-7000-8000-000000000000";

function device(number: number, differs: Partial<Device> = {}): Changeable<Device> {
  return {
    ...{ id: number, userId: `user-${number}`, provider: "fcm", token: `device-${number}`, utcOffset: 0 },
    ...{ isHealthy: true, isBlocked: false, isDeleted: false, wasFirst: true, ...differs },
  };
}

/** A message to a device, so many milliseconds after the start. */
function message(to: Device, at = 0): Message {
  return {
    ...{ provider: to.provider, token: to.token, messageId: messageId(id, to.id), collapseId: id },
    ...{ count: 1, firstAt: start + at, lastAt: start + at },
  };
}

/** A run without anything wrong, to be changed: one notification, to six devices with different fates. */
function goodRun() {
  const healthy = device(1);
  const other = device(2, { provider: "apns" });
  const unhealthy = device(3, { isHealthy: false });
  const elsewhere = device(4, { utcOffset: 60 });
  const newcomer = device(5, { wasFirst: false });
  const deleted = device(6, { isDeleted: true });
  const sent: Sent = {
    ...{ id, utcOffsets: [0], pauses: [], isSteered: false, isOver: true, remaining: 0 },
  };
  const account: Changeable<Account> = {
    ...{ planned: 4, sent: 2, failed: 1, dropped: 1, dead: new Set(), isCancelled: false },
    ...{ devices: [1, 2, 3, 6], historyWrong: 0 },
  };
  const played: Played[] = [];
  return {
    ...{ healthy, other, unhealthy, elsewhere, newcomer, deleted, sent, account, played },
    messages: [message(healthy), message(other)],
    ...{ lagMs: 0, peak: maxPerSecond },
  };
}
type Run = ReturnType<typeof goodRun>;

function redOf(change: (run: Run) => void): string[] {
  const run = goodRun();
  change(run);
  const { healthy, other, unhealthy, elsewhere, newcomer, deleted, sent, account, played, lagMs } = run;
  const devices = [healthy, other, unhealthy, elsewhere, newcomer, deleted];
  const judge = new Judge(devices, [sent], { played, lagAt: () => lagMs, longestLagMs: lagMs });
  for (const { provider, token, ...one } of run.messages) judge.message(provider, token, one);
  judge.account(sent, account);
  judge.peak("fcm", run.peak);
  return [...judge.verdict().red.keys()];
}

/** Another message to a device, which the account explains. */
function add(run: Run, to: Device, at?: number): void {
  run.messages.push(message(to, at));
  run.account.sent += 1;
}

/** As if the message to the healthy device had not come, and its place in the counts was another one. */
function lose({ messages, account }: Run, place?: "failed" | "dropped"): void {
  messages.shift();
  account.sent -= 1;
  if (place) account[place] += 1;
}

function stopped(name: string, from: number, to: number): Played {
  const trouble = troubles.find((one) => one.name.startsWith(name));
  if (!trouble) throw new Error(`there is no trouble ${name}`);
  return { trouble, startedAt: start + from, endedAt: start + to };
}

/** The notification was paused, and the first message came so many milliseconds later. */
function pauseBefore({ sent, messages: [first] }: Run, afterMs: number, lastedMs = Infinity): void {
  (sent.pauses as { from: number; to: number }[]).push({ from: start, to: start + lastedMs });
  if (first) Object.assign(first, { firstAt: start + afterMs, lastAt: start + afterMs });
}

describe("nothing is wrong", () => {
  it.each<[string, (run: Run) => void]>([
    ["with a run in which nothing was", () => undefined],
    [
      "where a device that came later got it too",
      (run) => {
        Object.assign(run.account, { planned: 5, devices: [1, 2, 3, 6, 5] });
        add(run, run.newcomer);
      },
    ],
    [
      "where the project lacks what a device needs, which is a dead letter",
      ({ unhealthy, account }) => {
        unhealthy.isBlocked = true;
        Object.assign(account, { failed: 0, dead: new Set([unhealthy.id]) });
      },
    ],
    [
      "where a message did not come whose device was deleted",
      (run) => {
        run.healthy.isDeleted = true;
        lose(run, "dropped");
      },
    ],
    [
      "where the notification was cancelled",
      (run) => {
        run.account.isCancelled = true;
        lose(run, "dropped");
        Object.assign(run.account, { failed: 0, dropped: 3 });
      },
    ],
    [
      "where a device was deleted before it was planned",
      (run) => {
        run.account.planned -= 1;
        run.account.dropped -= 1;
        run.account.devices = [1, 2, 3];
      },
    ],
    [
      "where a message was accepted without an answer, and dropped",
      (run) => {
        run.account.sent -= 1;
        run.account.dropped += 1;
        run.healthy.isDeleted = true;
      },
    ],
    [
      "where a fake accepted what it would have refused",
      (run) => {
        run.account.failed -= 1;
        add(run, run.unhealthy);
      },
    ],
    ["within two seconds of a pause", (run) => pauseBefore(run, 2_000)],
    ["after a pause was over", (run) => pauseBefore(run, 5_000, 4_000)],
    [
      "before the cancelling was answered",
      (run) => {
        run.sent.cancelledAt = start + 1;
      },
    ],
    [
      "as late as the machine was",
      (run) => {
        run.lagMs = 1_000;
        pauseBefore(run, 3_000);
      },
    ],
    [
      "where a process stood still at a pause, and went on when the message came",
      (run) => {
        run.played.push(stopped("SIGSTOP", 1_000, 9_000));
        pauseBefore(run, 9_400);
      },
    ],
    [
      "up to half a second above the limit",
      (run) => {
        run.peak = 1.5 * maxPerSecond;
      },
    ],
    [
      "where the fakes counted at once what came while the machine was late",
      (run) => {
        run.lagMs = 1_000;
        run.peak = 2.5 * maxPerSecond;
      },
    ],
  ])("%s", (_, change) => {
    expect(redOf(change)).toEqual([]);
  });
});

describe("something is wrong", () => {
  it.each<[string, string[], (run: Run) => void]>([
    ["a planned device got nothing", ["lost", "counted wrongly"], (run) => lose(run)],
    [
      "a planned device got nothing, and counts as failed",
      ["lost", "counted wrongly"],
      (run) => lose(run, "failed"),
    ],
    [
      "a planned device got nothing, and counts as sent",
      ["lost", "counted wrongly"],
      (run) => void run.messages.shift(),
    ],
    [
      "a planned device got nothing, and counts as dropped",
      ["lost", "counted wrongly"],
      (run) => lose(run, "dropped"),
    ],
    [
      "a device at the offset was not planned",
      ["lost"],
      (run) => {
        lose(run);
        run.account.planned -= 1;
        run.account.devices = [2, 3, 6];
      },
    ],
    [
      "a device that cannot be sent to was not planned",
      ["lost"],
      (run) => {
        Object.assign(run.account, { planned: 3, failed: 0, devices: [1, 2, 6] });
      },
    ],
    [
      "a device was planned twice",
      ["planned twice", "counted wrongly"],
      (run) => {
        run.account.planned += 1;
      },
    ],
    [
      "a device at another offset got it",
      ["not in the audience"],
      (run) => {
        run.account.planned += 1;
        run.account.devices = [...run.account.devices, 4];
        add(run, run.elsewhere);
      },
    ],
    [
      "a device got it that was not planned",
      ["not in the audience", "counted wrongly"],
      (run) => {
        run.messages.push(message(run.newcomer));
        run.account.dropped = 0;
      },
    ],
    [
      "a token got it that nobody registered",
      ["not in the audience"],
      (run) => {
        run.messages.push({ ...message(run.healthy), token: "unknown" });
      },
    ],
    [
      "a token got it from another provider",
      ["not in the audience"],
      (run) => {
        run.messages.push({ ...message(run.healthy), provider: "webpush" });
      },
    ],
    [
      "a notification came that nobody sent",
      ["not in the audience"],
      (run) => {
        run.messages.push({ ...message(run.healthy), collapseId: undefined });
      },
    ],
    [
      "a message came under another id",
      ["under another id"],
      ({ messages: [first] }) => {
        if (first) first.messageId = messageId(id, 2);
      },
    ],
    ["a message came two seconds after a pause", ["after a stop"], (run) => pauseBefore(run, 2_001)],
    [
      "a message came two seconds after the cancelling",
      ["after a stop"],
      (run) => {
        run.sent.cancelledAt = start - 2_001;
      },
    ],
    [
      "a message came again after a pause",
      ["after a stop"],
      (run) => {
        pauseBefore(run, 0);
        Object.assign(run.messages[0] ?? {}, { count: 2, lastAt: start + 3_000 });
      },
    ],
    [
      "a message came later than the machine was",
      ["after a stop"],
      (run) => {
        run.lagMs = 1_000;
        pauseBefore(run, 3_001);
      },
    ],
    [
      "a process that had stood still went on long before",
      ["after a stop"],
      (run) => {
        run.played.push(stopped("SIGSTOP", 1_000, 9_000));
        pauseBefore(run, 9_501);
      },
    ],
    [
      "a process stood still long after the pause",
      ["after a stop"],
      (run) => {
        run.played.push(stopped("SIGSTOP", 2_001, 9_000));
        pauseBefore(run, 9_400);
      },
    ],
    [
      "a process was restarted, which does not stand still",
      ["after a stop"],
      (run) => {
        run.played.push(stopped("SIGTERM", 1_000, 9_000));
        pauseBefore(run, 9_400);
      },
    ],
    [
      "more counts as failed than had to fail",
      ["counted wrongly"],
      (run) => {
        run.account.failed += 1;
        run.account.sent -= 1;
      },
    ],
    [
      "less counts as failed than had to fail",
      ["counted wrongly"],
      (run) => {
        run.account.failed -= 1;
        run.account.dropped += 1;
        run.healthy.isDeleted = true;
      },
    ],
    [
      "more counts as dropped than was deleted",
      ["counted wrongly"],
      (run) => {
        run.account.dropped += 1;
        run.account.sent -= 1;
      },
    ],
    [
      "what came counts nowhere",
      ["counted wrongly"],
      (run) => {
        run.account.isCancelled = true;
        Object.assign(run.account, { planned: 4, sent: 0, failed: 0, dropped: 0 });
      },
    ],
    [
      "a device was given up",
      ["given up"],
      (run) => {
        lose(run);
        run.account.dead = new Set([1]);
      },
    ],
    [
      "the history of a user is wrong",
      ["history wrong"],
      (run) => {
        run.account.historyWrong = 1;
      },
    ],
    [
      "more came than in half a second above the limit",
      ["faster than the limit"],
      (run) => {
        run.peak = 1.5 * maxPerSecond + 1;
      },
    ],
    [
      "more came than what the machine was late by explains",
      ["faster than the limit"],
      (run) => {
        run.lagMs = 1_000;
        run.peak = 2.5 * maxPerSecond + 1;
      },
    ],
  ])("%s", (_, kinds, change) => {
    expect(redOf(change)).toEqual(kinds);
  });

  it("a message came twice", () => {
    const judge = new Judge([], [], { played: [], lagAt: () => 0, longestLagMs: 0 });
    const before = { at: start, answeredAt: null, endedAt: null, isPending: false };
    const repeat = { token: "device-1", messageId: "1", collapseId: id, at: start + 10_000, before };
    judge.repeat("fcm", repeat);
    expect([...judge.verdict().red.keys()]).toEqual([]);
    judge.repeat("fcm", { ...repeat, before: { ...before, isPending: true } });
    expect(judge.verdict().red.get("twice")?.first).toEqual([
      expect.stringContaining("waited for the answer"),
    ]);
    expect(judge.verdict().repeats).toEqual(new Map([["not answered before", 1]]));
  });
});
