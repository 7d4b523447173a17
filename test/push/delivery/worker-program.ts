/**
 * A process that delivers through an FCM fake, to be measured. Its argument is JSON: see
 * {@link WorkerArgument}. Prints a line when it has started.
 */

import { systemClock } from "../../../src/platform/base/clock.ts";
import { WakeUps } from "../../../src/platform/base/loop.ts";
import { openDatabase } from "../../../src/platform/database/open.ts";
import type { DatabaseSettings } from "../../../src/platform/database/settings.ts";
import { createLogger } from "../../../src/platform/observability/logger.ts";
import { createMetrics } from "../../../src/platform/observability/metrics.ts";
import { pushMigrations } from "../../../src/push/database.ts";
import { startDelivery } from "../../../src/push/delivery/delivery.ts";
import type { FcmSettings } from "../../../src/push/provider-settings.ts";
import { FcmProvider } from "../../../src/push/providers/fcm/fcm.ts";
import { http2Clients } from "../../support/http2-clients.ts";

export interface WorkerArgument {
  readonly database: DatabaseSettings;
  readonly fcm: FcmSettings;
  readonly maxPerSecond: number;
}

const argument: WorkerArgument = JSON.parse(process.argv[2] ?? "");
const database = await openDatabase(argument.database, pushMigrations);
const logger = createLogger({ level: "warn", environment: "production" });
const provider = new FcmProvider(argument.fcm, systemClock, http2Clients.own);
const delivery = startDelivery({
  database,
  wakeUps: new WakeUps(),
  providers: new Map([["fcm", provider]]),
  settings: {
    maxPerSecond: argument.maxPerSecond,
    rampSeconds: 0,
    maxDeadPercent: 10,
    removalDelaySeconds: 3600,
  },
  logger,
  metrics: createMetrics("gatepost", "1.2.3"),
  completion: {
    ifDone: async () => undefined,
    lock: async () => undefined,
    inTransaction: async () => undefined,
  },
});
process.once("SIGTERM", async () => {
  await delivery.stop();
  await provider.close();
  await database.close();
  const { user, system } = process.cpuUsage();
  process.stdout.write(
    `${JSON.stringify({ cpuSeconds: (user + system) / 1e6, rssMb: process.resourceUsage().maxRSS / 1024 })}\n`,
  );
});
process.stdout.write("started\n");
