/**
 * The work and the troubles of `--kills`: a notification goes to everybody, and personal ones to a user each, of callers
 * who repeat what got no response. In each burst of these a process is killed.
 */
import { setTimeout as pause } from "node:timers/promises";
import { worldOffsets } from "../support/send-audience.ts";
import { type Calls, isToBeRepeated } from "./calls.ts";
import type { Chance } from "./random.ts";
import { type Played, type Troubles, troubles } from "./troubles.ts";
import type { Sent, Work } from "./work.ts";
import type { World } from "./world.ts";

/** Personal notifications of all bursts, each to another user. */
const personalSends = 2_000;
const callers = 32;
const kill = troubles.find(({ name }) => name === "kill -9 and restart");

export function startKills(world: World, calls: Calls, chance: Chance, kills: number): Work & Troubles {
  const sent: Sent[] = [];
  const wrong = new Set<string>();
  const problems = new Set<string>();
  const done = new Map<string, number>();
  const played: Played[] = [];
  const count = (what: string) => done.set(what, (done.get(what) ?? 0) + 1);

  async function send(
    key: string,
    audience: object,
    message: string,
    users?: readonly string[],
  ): Promise<void> {
    const json = { audience, content: { texts: { en: { title: "Good morning", message } } } };
    const call = { method: "POST", path: "/notifications", json, headers: { "idempotency-key": key } };
    for (;;) {
      const answer = await calls.once(call);
      if (answer === undefined) count("sends repeated without a response");
      else if (!isToBeRepeated(answer)) {
        const id = answer.headers.get("notification-id");
        if (answer.status !== 201 || id === null)
          wrong.add(`a send was answered ${answer.status}: ${answer.text}`);
        else
          sent.push({
            ...{ id, utcOffsets: worldOffsets, ...(users && { users }) },
            ...{ pauses: [], isSteered: false, isOver: false, remaining: 1 },
          });
        count(users ? "personal sends" : "sends to all");
        return;
      }
      await pause(200);
    }
  }

  async function burst(first: number, end: number): Promise<void> {
    let next = first;
    async function run(): Promise<void> {
      while (next < end) {
        const user = `user-${next}`;
        next += 1;
        await send(user, { personal: [{ user, variables: { name: user } }] }, "Hello {{name}}.", [user]);
      }
    }
    await Promise.all(Array.from({ length: callers }, run));
  }

  async function killOne(): Promise<void> {
    await pause(chance.between(100, 1_500));
    const startedAt = Date.now();
    if (kill && (await kill.play(world, chance)))
      played.push({ trouble: kill, startedAt, endedAt: Date.now() });
    else problems.add("nobody could be killed");
  }

  async function run(): Promise<void> {
    await send("everybody", { everybody: true }, "The shop opens at nine.");
    const size = personalSends / kills;
    for (let nth = 0; nth < kills; nth += 1)
      await Promise.all([burst(Math.round(nth * size), Math.round((nth + 1) * size)), killOne()]);
  }

  const running = run();
  return {
    ...{ sent, wrong, done, problems },
    async end() {
      await running;
      return played;
    },
  };
}
