import { type SQL, sql } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import type { Database } from "../../platform/database/database.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import type { Metrics } from "../../platform/observability/metrics.ts";
import { AuthEvents, attemptKindName, recordEvent } from "../events.ts";
import { type GuessObserver, guessingRules, guessKinds } from "./guessing.ts";

interface Dependencies {
  readonly db: Database;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly logger: Logger;
}

/** Counts wrong and refused guesses, and writes the events of those that are about an identity. */
export function createGuessObserver({ db, clock, metrics, logger }: Dependencies): GuessObserver {
  const failures = metrics.counter(
    "gatepost_guesses_failed_total",
    "Wrong passwords and one-time codes, by what was guessed and whether it was the last that the limit allows.",
    { kind: guessKinds, locked: ["false", "true"] },
  );
  const refusals = metrics.counter(
    "gatepost_guesses_refused_total",
    "Guesses refused without being judged, by the rule whose limit was reached.",
    { rule: Object.values(guessingRules).map(({ name }) => name) },
  );
  return {
    async failed(kind, clientId, { identity }, isLocked) {
      failures.inc({ kind, locked: String(isLocked) });
      // A name that no identity has is not recorded: anybody could fill the outbox with invented ones.
      if (!identity) return;
      const fields = {
        identityId: text(identity.id),
        clientId: text(clientId),
        kind: text(attemptKindName(kind)),
      };
      const at = new Date(clock.now());
      await db.execute(recordEvent(AuthEvents.attemptFailed, fields, { at }));
      if (isLocked) await db.execute(recordEvent(AuthEvents.accountLocked, fields, { at }));
    },
    refused: (rule) => refusals.inc({ rule }),
    notSettled: (err) => logger.warn({ err }, "What follows a guess could not be written"),
  };
}

function text(value: string): SQL {
  return sql`${value}::text`;
}
