/** Looks at the progress of every notification all the time: do the sums add up, and does no figure go back? */
import { setTimeout as pause } from "node:timers/promises";
import type { components } from "../../gen/openapi/push-orchestration.ts";
import { type Calls, isToBeRepeated } from "./calls.ts";
import type { Sent, Work } from "./work.ts";

type Progress = components["schemas"]["NotificationProgress"];

export interface ProgressWatch {
  /** How often somebody looked. */
  looks(): number;
  /** What was wrong with what was seen; in words. */
  readonly wrong: ReadonlySet<string>;
  /** The last look at each notification. */
  last(id: string): Progress | undefined;
  end(): Promise<void>;
}

const counts = ["planned", "sent", "failed", "dropped", "deadLettered", "remaining"] as const;
/** Of a notification these never become fewer. */
const growing = ["planned", "sent", "failed", "dropped"] as const;
const watchers = 2;

/** What of it does not add up, in words. */
function sumsWrong(progress: Progress): string[] {
  const parts = [progress, ...progress.breakdown];
  const wrong = parts.filter(
    ({ planned, sent, failed, dropped, deadLettered, remaining }) =>
      planned !== sent + failed + dropped + deadLettered + remaining,
  );
  const unequal = counts.filter(
    (count) => progress[count] !== progress.breakdown.reduce((sum, part) => sum + part[count], 0),
  );
  const below = counts.filter((count) => parts.some((part) => part[count] < 0));
  return [
    ...wrong.map(() => "planned is not the sum"),
    ...unequal.map((count) => `${count} is not the sum of its parts`),
    ...below.map((count) => `${count} is below zero`),
  ];
}

export function watchProgress({ sent }: Pick<Work, "sent">, calls: Calls): ProgressWatch {
  const wrong = new Set<string>();
  const seen = new Map<string, Progress>();
  let looks = 0;
  let turn = 0;
  let isOver = false;

  async function look(one: Sent): Promise<void> {
    const before = seen.get(one.id);
    const answer = await calls.once({ method: "GET", path: `/notifications/${one.id}` });
    if (answer === undefined || isToBeRepeated(answer)) return;
    if (answer.status !== 200) {
      wrong.add(`progress of ${one.id} was answered ${answer.status}: ${answer.text}`);
      return;
    }
    const progress: Progress = JSON.parse(answer.text);
    looks += 1;
    for (const problem of sumsWrong(progress)) wrong.add(`${one.id}: ${problem}`);
    // Only what was answered before this was asked must not be greater.
    for (const count of growing) {
      const was = before?.[count] ?? 0;
      if (progress[count] < was)
        wrong.add(`${one.id} (${progress.state}): ${count} went back from ${was} to ${progress[count]}`);
    }
    if (before?.completedAt && !progress.completedAt) wrong.add(`${one.id} is not over any more`);
    if (seen.get(one.id) === before) seen.set(one.id, progress);
    one.remaining = progress.remaining;
    one.isOver = progress.completedAt !== null;
  }

  async function run(): Promise<void> {
    while (!isOver) {
      const open = sent.filter((one) => !one.isOver);
      turn += 1;
      const one = open[turn % Math.max(1, open.length)];
      if (one) await look(one).catch((error: unknown) => void wrong.add(`${one.id}: ${error}`));
      await pause(30);
    }
  }

  const running = Array.from({ length: watchers }, run);
  return {
    looks: () => looks,
    wrong,
    last: (id) => seen.get(id),
    async end() {
      isOver = true;
      await Promise.all(running);
    },
  };
}
