import { sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import type { Metrics } from "../../platform/observability/metrics.ts";
import { AuthEvents, type CodesLimit, codesLimitName, recordCodesEvent } from "../events.ts";
import type { DatabaseCounters } from "../limits/database-counters.ts";
import { prefixOf } from "./numbers.ts";

const codeLimits = ["phone_network", "phone", "address", "network", "prefix", "client"] as const;
/** Refusals that write no event: a user who taps too early reaches the limits of a session and the interval. */
const silent = ["number", "breaker", "session", "phone_interval"] as const;

const outcomes = ["sent", "refused", "unknown"] as const;
const checks = ["right", "wrong", "invalid"] as const;

/** A code that a limit has refused. */
interface LimitedCode {
  readonly limit: CodesLimit;
  /** Whose limit it is, such as the address; never written down as it is. */
  readonly subject: string;
  /** Seconds until it is asked for with success. */
  readonly waitSeconds: number;
  readonly phone: string;
  readonly clientId: string;
}

/** Counts what becomes of codes, and writes the events of limits. */
export interface CodeObserver {
  refused(reason: (typeof silent)[number]): void;
  /** Writes an event too, of the first refusal of the window alone: nobody can fill the outbox with refusals. */
  limited(code: LimitedCode): Promise<void>;
  message(outcome: (typeof outcomes)[number]): void;
  checked(result: (typeof checks)[number]): void;
}

interface Dependencies {
  readonly db: Database;
  readonly counters: Pick<DatabaseCounters, "countAll">;
  readonly metrics: Metrics;
  readonly logger: Logger;
}

export function createCodeObserver({ db, counters, metrics, logger }: Dependencies): CodeObserver {
  const refusals = metrics.counter(
    "gatepost_codes_refused_total",
    "One-time codes that were asked for and not sent: by a limit, a breaker, or as the number gets none.",
    { reason: [...silent, ...codeLimits] },
  );
  const messages = metrics.counter(
    "gatepost_codes_messages_total",
    "Messages with one-time codes, by what became of handing them over.",
    { outcome: outcomes },
  );
  const tries = metrics.counter("gatepost_codes_checked_total", "One-time codes that were presented.", {
    result: checks,
  });

  async function recordFirst({ limit, subject, waitSeconds, phone, clientId }: LimitedCode): Promise<void> {
    const rule = { name: `code_${limit}_told`, failures: 1, windowSeconds: Math.ceil(waitSeconds) };
    if (!(await counters.countAll([{ rule, subject }]))) return;
    const fields = {
      prefix: sql`${prefixOf(phone)}::text`,
      clientId: sql`${clientId}::text`,
      limit: sql`${codesLimitName(limit)}::text`,
    };
    await db.execute(recordCodesEvent(AuthEvents.codesLimitReached, fields));
  }

  return {
    refused: (reason) => refusals.inc({ reason }),
    async limited(code) {
      refusals.inc({ reason: code.limit });
      await recordFirst(code).catch((err) =>
        logger.warn({ err }, "The event of a limit could not be written"),
      );
    },
    message: (outcome) => messages.inc({ outcome }),
    checked: (result) => tries.inc({ result }),
  };
}
