/** The rounds of a janitor: the steps that remove a service's unneeded rows, one after the other. */
import type { Logger } from "pino";
import { every, type Loop } from "./loop.ts";
import type { JanitorObserver } from "./observers.ts";

interface StepRun<Kind extends string> {
  /** Aborted when the process stops; then the step ends after its current statement. */
  readonly stopping: AbortSignal | undefined;
  cleaned(kind: Kind, rows: number): void;
}

export interface JanitorStep<Kind extends string> {
  /** The kinds of rows that the step removes; empty if it only prepares the removal of others. */
  readonly kinds: readonly Kind[];
  /** Deals with batches until nothing is left (true), something is in the way, or `stopping` is aborted. */
  run(run: StepRun<Kind>): Promise<boolean>;
}

export interface RoundOptions<Kind extends string> {
  readonly observer?: JanitorObserver<Kind> | undefined;
  readonly stopping?: AbortSignal | undefined;
}

/** Runs every step once, in order, until `stopping`. @throws at the end: the error, or an AggregateError of several */
export async function runRound<Kind extends string>(
  steps: readonly JanitorStep<Kind>[],
  { observer, stopping }: RoundOptions<Kind> = {},
): Promise<void> {
  const errors: unknown[] = [];
  const run: StepRun<Kind> = { stopping, cleaned: (kind, rows) => observer?.cleaned(kind, rows) };
  for (const step of steps) {
    if (stopping?.aborted) break;
    try {
      const isDone = await step.run(run);
      if (isDone) for (const kind of step.kinds) observer?.caughtUp(kind);
    } catch (error) {
      errors.push(error);
    }
  }
  if (errors.length > 1)
    throw new AggregateError(errors, "several steps of the janitor failed", { cause: errors[0] });
  if (errors.length > 0) throw errors[0];
  if (!stopping?.aborted) observer?.roundEnded();
}

interface Rounds {
  readonly intervalSeconds: number;
  readonly logger: Logger;
  readonly round: (stopping: AbortSignal) => Promise<void>;
}

/** Runs rounds at an interval until stopped. A round that fails is logged, and the next one comes as usual. */
export function startRounds({ intervalSeconds, logger, round }: Rounds): Loop {
  return every(intervalSeconds * 1000, round, (err) =>
    logger.warn({ err }, "The janitor could not finish its round; it will try again"),
  );
}
