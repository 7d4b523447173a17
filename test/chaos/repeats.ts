/**
 * Whether a message may have arrived twice. At least once is promised: a message comes again if its answer, or the
 * record of it, was lost. So the time before either got no answer, or its answer was on its way to a connection that
 * broke, or to a process that was killed, or that was stopped for so long that others took its work over. Never do two
 * send it at once.
 */
import type { Repeat } from "../../src/development/provider-fakes/ledger.ts";
import type { Provider } from "./fakes.ts";
import type { LagAt } from "./lag.ts";
import type { Played } from "./troubles.ts";

/** What a process was answered it stores within a second, and the time that storing takes. */
const unstoredMs = 1_300;
/** It tries again after a second where the database has ended its connections meanwhile. */
const storedAgainMs = 1_700;
/** What a fake has answered is read within this time, unless the connection breaks first. */
const unreadMs = 1_000;
/** The fakes see the end of a connection as late as this. */
const slackMs = 1_000;
/** A process that is stopped for longer may lose its work to others, as it misses the heartbeats of its jobs. */
const missedMs = 6_000;
/** It has its chunks until others notice that, and fetch them. What it sends by then and has not stored comes again. */
const takenOverMs = 6_000;

/** When a message was sent and answered the time before, and when its connection ended; what its answer may be late by. */
interface Before {
  readonly at: number;
  readonly answeredAt: number;
  readonly endedAt: number;
  readonly lag: number;
  /** Milliseconds in which its process has stored the answer. */
  readonly unstoredMs: number;
}

/** The trouble that explains the repeat, or that nothing was answered; undefined: it should not have come. */
export function explanation(
  provider: Provider,
  { before }: Repeat,
  played: readonly Played[],
  lagAt: LagAt,
): string | undefined {
  const { at, answeredAt } = before;
  if (answeredAt === null) return before.isPending ? undefined : "not answered before";
  const endedAt = before.endedAt ?? Number.POSITIVE_INFINITY;
  const lag = Math.max(lagAt(answeredAt), lagAt(before.endedAt ?? answeredAt));
  const wasCutOff = played.some(
    ({ trouble, startedAt }) =>
      trouble.breaks === "database" && startedAt >= answeredAt - slackMs - lag && startedAt <= endedAt,
  );
  const storedWithin = unstoredMs + (wasCutOff ? storedAgainMs : 0);
  const message = { at, answeredAt, endedAt, lag, unstoredMs: storedWithin };
  return played.find((one) => (one.provider ?? provider) === provider && explains(one, message))?.trouble
    .name;
}

function explains(
  { trouble, startedAt, endedAt: overAt }: Played,
  { at, answeredAt, endedAt, lag, unstoredMs }: Before,
): boolean {
  const slack = slackMs + lag;
  const isNear = (from: number, to: number) => endedAt >= from - slackMs && endedAt <= to + slack;
  switch (trouble.breaks) {
    case "process":
      return isNear(startedAt, startedAt) && answeredAt >= endedAt - unstoredMs - lag;
    case "connections":
      return isNear(startedAt, overAt) && answeredAt >= endedAt - unreadMs - lag;
    case "time":
      return (
        overAt - startedAt >= missedMs &&
        answeredAt >= startedAt - unstoredMs - lag &&
        (at <= startedAt + slack || (at >= overAt && at <= overAt + takenOverMs + lag))
      );
    default:
      return false;
  }
}
