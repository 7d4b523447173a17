/**
 * What callers do meanwhile: notifications are sent, paused, resumed and cancelled, devices are registered and deleted,
 * and users. Keeps what was acknowledged, and when.
 */
import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import { worldOffsets } from "../support/send-audience.ts";
import { drawOf, newToken } from "./audience.ts";
import type { Calls } from "./calls.ts";
import type { Chance } from "./random.ts";
import type { World } from "./world.ts";

/** A notification that was acknowledged. Times are milliseconds since the epoch. */
export interface Sent {
  readonly id: string;
  readonly utcOffsets: readonly number[];
  /** It is for these alone; undefined: for whoever is at the offsets. */
  readonly users?: readonly string[];
  /** From the answer to a pause to the call that ended it. */
  readonly pauses: { readonly from: number; to: number }[];
  /** When the cancelling was answered; undefined: it was not. */
  cancelledAt?: number;
  /** Somebody pauses, resumes or cancels it at the moment. */
  isSteered: boolean;
  /** It has ended, as somebody has seen. */
  isOver: boolean;
  /** Devices that were left when somebody looked last. */
  remaining: number;
}

export interface Work {
  readonly sent: readonly Sent[];
  /** What was answered that should not have been; in words. */
  readonly wrong: ReadonlySet<string>;
  /** How often each thing was done, by its name. */
  readonly done: ReadonlyMap<string, number>;
  /** Ends it; what was paused is resumed. */
  end(): Promise<unknown>;
}

/** Devices that may be waiting for a message before another notification is sent: more takes longer than the run. */
const mostRemaining = 15_000;
/** The number of the first device that is registered meanwhile. */
const firstNew = 1_000_000;

export function startWork(world: World, calls: Calls, chance: Chance): Work {
  const sent: Sent[] = [];
  const wrong = new Set<string>();
  const done = new Map<string, number>();
  const over = new AbortController();
  let newest = firstNew;

  const count = (what: string) => done.set(what, (done.get(what) ?? 0) + 1);
  const rest = (low: number, high: number) =>
    pause(chance.between(low, high), undefined, { signal: over.signal }).catch(() => undefined);

  function audience(): readonly number[] {
    const draw = chance.next();
    if (draw < 0.45) return [chance.one(worldOffsets)];
    if (draw > 0.9) return worldOffsets;
    return [...new Set(Array.from({ length: chance.integer(2, 8) }, () => chance.one(worldOffsets)))];
  }

  async function sendOne(): Promise<void> {
    const utcOffsets = audience();
    const json = { title: "Good morning", message: "The shop opens at nine.", utcOffsets };
    const headers = { "idempotency-key": randomUUID() };
    const answer = await calls.send({ method: "POST", path: "/push", json, headers });
    const id = answer.headers.get("notification-id");
    if (answer.status !== 204 || id === null) {
      wrong.add(`a send was answered ${answer.status}: ${answer.text}`);
      return;
    }
    sent.push({ id, utcOffsets, pauses: [], isSteered: false, isOver: false, remaining: 1 });
    count(utcOffsets.length === worldOffsets.length ? "sends to all" : "sends to some offsets");
  }

  async function control(one: Sent, what: "pause" | "resume" | "cancel"): Promise<boolean> {
    const answer = await calls.send({ method: "POST", path: `/notifications/${one.id}/${what}` });
    if (answer.status === 200) count(`notifications ${what}d`.replace("canceld", "cancelled"));
    else if (answer.status !== 409) wrong.add(`${what} was answered ${answer.status}: ${answer.text}`);
    return answer.status === 200;
  }

  async function cancel(one: Sent): Promise<void> {
    if (await control(one, "cancel")) one.cancelledAt = Date.now();
  }

  async function steer(one: Sent): Promise<void> {
    one.isSteered = true;
    if (chance.isWithin(0.4)) await cancel(one);
    else if (await control(one, "pause")) {
      const paused = { from: Date.now(), to: Number.POSITIVE_INFINITY };
      one.pauses.push(paused);
      await rest(500, 4_000);
      paused.to = Date.now();
      if (chance.isWithin(0.2)) await cancel(one);
      else await control(one, "resume");
    }
    one.isSteered = false;
  }

  async function register(): Promise<void> {
    newest += 1;
    const n = newest;
    const { provider, fate } = drawOf(n);
    const user = `new-${n}`;
    const token = await newToken(provider, fate, n, world.fakes);
    const as = await world.auth.userToken(user);
    const json = { token, provider, expiration: new Date(Date.now() + 86_400_000).toISOString() };
    const headers = { "barrier-user-utc-offset": String(chance.one(worldOffsets)) };
    const answer = await calls.send({ method: "POST", path: "/token", token: as, json, headers });
    if (answer.status !== 204) wrong.add(`a registration was answered ${answer.status}: ${answer.text}`);
    count("devices registered");
    if (chance.isWithin(0.3)) return;
    await rest(0, 3_000);
    if (chance.isWithin(0.3)) {
      await world.auth.deleteIdentity(user);
      count("users deleted");
      return;
    }
    const deleted = await calls.send({ method: "DELETE", path: "/token", token: as, json: { token } });
    if (deleted.status !== 204) wrong.add(`a deletion was answered ${deleted.status}: ${deleted.text}`);
    count("devices deleted");
  }

  async function deleteUser(): Promise<void> {
    const user = `user-${chance.integer(0, 19_999)}`;
    const as = await world.auth.userToken(user);
    if (chance.isWithin(0.5)) {
      await world.auth.deleteIdentity(user);
      count("users deleted");
    } else {
      const answer = await calls.send({ method: "DELETE", path: "/token", token: as, json: { all: true } });
      if (answer.status !== 204) wrong.add(`a deletion was answered ${answer.status}: ${answer.text}`);
      count("devices deleted");
    }
  }

  async function repeat(low: number, high: number, what: () => Promise<void>): Promise<void> {
    while (!over.signal.aborted) {
      // The auth service, too, cannot answer while its database does not, and a connection may break.
      await what().catch((error: unknown) => {
        if (!/answered 503|fetch failed/.test(String(error))) wrong.add(String(error));
      });
      await rest(low, high);
    }
  }

  const running = [
    repeat(500, 2_000, async () => {
      const waiting = sent.reduce((sum, { remaining, isOver }) => sum + (isOver ? 0 : remaining), 0);
      if (waiting < mostRemaining) await sendOne();
    }),
    repeat(1_000, 3_000, async () => {
      const open = sent.filter(({ isOver, isSteered, cancelledAt }) => !isOver && !isSteered && !cancelledAt);
      if (open.length > 0) await steer(chance.one(open));
    }),
    repeat(100, 500, register),
    repeat(500, 1_500, deleteUser),
  ];
  return {
    sent,
    wrong,
    done,
    async end() {
      over.abort();
      await Promise.all(running);
    },
  };
}
