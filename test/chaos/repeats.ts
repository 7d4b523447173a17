/**
 * Whether a message may have arrived twice. At least once is promised: a message comes again if its answer, or the
 * record of it, was lost. So the time before either got no answer, or its answer was on its way to a connection that
 * broke, or to a process that was killed, or that was stopped for so long that others took its work over.
 */
import type { Played } from "./troubles.ts";

/** The times are milliseconds since the epoch. */
export interface Repeat {
  readonly token: string;
  readonly messageId: string;
  readonly collapseId: string | undefined;
  readonly at: number;
  readonly before: {
    readonly at: number;
    /** Null: the fake did not answer it. */
    readonly answeredAt: number | null;
    /** When its connection ended; null: it has not. */
    readonly endedAt: number | null;
  };
}

/** What a process was answered it stores within a second; on a busy machine, and after a lost connection, it takes longer. */
const unstoredMs = 3_000;
/** What a fake has answered is read within this time, unless the connection breaks first. */
const unreadMs = 1_000;
/** The fakes see the end of a connection as late as this. */
const slackMs = 1_000;
/** A process that is stopped for longer may lose its work to others, as it misses the heartbeats of its jobs. */
const missedMs = 6_000;

const isNear = (at: number, from: number, to: number) => at >= from - slackMs && at <= to + slackMs;

/** The trouble that explains the repeat, or that nothing was answered; undefined: it should not have come. */
export function explanation({ before }: Repeat, played: readonly Played[]): string | undefined {
  const { at, answeredAt } = before;
  if (answeredAt === null) return "not answered before";
  const endedAt = before.endedAt ?? Number.POSITIVE_INFINITY;
  return played.find((one) => explains(one, { at, answeredAt, endedAt }))?.trouble.name;
}

function explains(
  { trouble, startedAt, endedAt: overAt }: Played,
  { at, answeredAt, endedAt }: { readonly at: number; readonly answeredAt: number; readonly endedAt: number },
): boolean {
  switch (trouble.breaks) {
    case "process":
      return isNear(endedAt, startedAt, startedAt) && answeredAt >= endedAt - unstoredMs;
    case "connections":
      return isNear(endedAt, startedAt, overAt) && answeredAt >= endedAt - unreadMs;
    case "time":
      return (
        overAt - startedAt >= missedMs && answeredAt >= startedAt - unstoredMs && at <= startedAt + slackMs
      );
    default:
      return false;
  }
}
