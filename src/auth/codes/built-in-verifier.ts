import type { Database } from "../../platform/database/database.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import type { Metrics } from "../../platform/observability/metrics.ts";
import type { CodesSettings } from "../codes-settings.ts";
import { createKeyOf } from "../limits/attempt-counters.ts";
import { createDatabaseCounters } from "../limits/database-counters.ts";
import { createBreakers } from "./breaker.ts";
import { createCodeObserver } from "./code-observer.ts";
import { type Codes, createCodes } from "./codes.ts";
import { createOutgoingMessages, senderOf } from "./outgoing-messages.ts";
import { createSendLimits } from "./send-limits.ts";
import { createSessions } from "./sessions.ts";
import type { SendMessage, ShowMessage } from "./text-message.ts";

interface Dependencies {
  readonly settings: CodesSettings;
  readonly db: Database;
  /** Of the tokens; the same in every process. */
  readonly issuer: string;
  readonly metrics: Metrics;
  readonly logger: Logger;
  readonly showMessage?: ShowMessage | undefined;
  /** What the settings name unless given. */
  readonly sendMessage?: SendMessage;
}

/** The built-in OTP verifier. It counts in the database, even where there is a cache: that may forget. */
export function createBuiltInVerifier(dependencies: Dependencies): Codes {
  const { settings, db, issuer, metrics, logger, showMessage } = dependencies;
  const { sendMessage = senderOf(settings.sender, logger, showMessage) } = dependencies;
  const counters = createDatabaseCounters(db, createKeyOf(issuer));
  const observer = createCodeObserver({ db, counters, metrics, logger });
  return createCodes({
    settings,
    sessions: createSessions(db, settings),
    limits: createSendLimits({ settings, counters, observer }),
    breakerRefusal: createBreakers({ db, counters, observer }),
    messages: createOutgoingMessages({ sendMessage, observer, logger }),
    observer,
  });
}
