/** What waits for a provider to answer anybody, and who tells it: whichever process heard the answer. */
import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { Jobs } from "../../../src/platform/messaging/jobs.ts";
import { createMetrics } from "../../../src/platform/observability/metrics.ts";
import { deliveryQueue, waitingForResponse } from "../../../src/push/database.ts";
import { recordResponses } from "../../../src/push/delivery/dead-reports.ts";
import { createDeliveryMetrics } from "../../../src/push/delivery/delivery-metrics.ts";
import { deliveryRules } from "../../../src/push/delivery/delivery-rules.ts";
import { ProviderPauses, wholeProvider } from "../../../src/push/delivery/provider-pauses.ts";
import { ServiceStates } from "../../../src/push/delivery/service-states.ts";
import type { PushProvider } from "../../../src/push/providers/provider.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { createDeliveryTest, type DeliveryTest, recordingProvider } from "./delivery-fixture.ts";

describe.each(backends)("an answer of a provider on %s", (backend) => {
  let test: DeliveryTest;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    test = await createDeliveryTest(backend);
    cleanup.defer(() => test.close());
  });
  beforeEach(() => test.clearState());

  /** Those of another process each time. */
  function statesOf(
    jobs: Pick<Jobs, "makeDue"> = test.jobs,
    provider: PushProvider = recordingProvider(),
    Pauses = ProviderPauses,
  ): ServiceStates {
    const rules = { ...deliveryRules, evidenceMs: 60_000 };
    const pauses = new Pauses({ db: test.db, jobs, provider: "fcm", rules, random: () => 0 });
    const metrics = createDeliveryMetrics(createMetrics("gatepost", "1.2.3"), [provider.name]);
    return new ServiceStates({ provider, pauses, rules, logger: test.log.logger, metrics });
  }

  const answer = async (states: ServiceStates) => {
    states.report(wholeProvider, "user", { kind: "sent" }, { at: performance.now(), hasFailedBefore: false });
    await states.stored();
  };

  async function isDue(id: string): Promise<boolean | undefined> {
    const [job] = await rows<{ due: boolean }>(
      test.db,
      sql`select start_after <= now() as due from push_jobs.job where id = ${id}::uuid`,
    );
    return job?.due;
  }

  it("that could not be told is told with the next one", async () => {
    const id = randomUUID();
    const data = { chunkId: 1, ...waitingForResponse };
    await test.jobs.enqueue(test.db, deliveryQueue("fcm"), [{ id, data, startAfterSeconds: 600 }]);
    let isAway = true;
    const states = statesOf({
      async makeDue(...work) {
        if (isAway) throw Object.assign(new Error("the connection has ended"), { code: "CONNECTION_CLOSED" });
        await test.jobs.makeDue(...work);
      },
    });
    await answer(states);
    expect(await isDue(id)).toBe(false);
    isAway = false;
    await answer(states);
    expect(await isDue(id)).toBe(true);
  });

  it("to one process shows all of them that the provider works, for as long as it would that one", async () => {
    const states = statesOf();
    await states.load();
    expect(states.isHealthy(wholeProvider)).toBe(false);
    await recordResponses(test.db, "fcm", { users: new Map([["user", true]]), sent: [], dead: [] });
    await states.load();
    expect(states.isHealthy(wholeProvider)).toBe(true);
    await test.db.execute(sql`update push.provider_answers set answered_at = now() - interval '61 seconds'`);
    const later = statesOf();
    await later.load();
    expect(later.isHealthy(wholeProvider)).toBe(false);
  });

  it("is not looked up where it could be that of any of several services", async () => {
    let looks = 0;
    class CountedPauses extends ProviderPauses {
      override lastResponseAgoMs(): Promise<number> {
        looks += 1;
        return super.lastResponseAgoMs();
      }
    }
    await statesOf(test.jobs, recordingProvider(), CountedPauses).load();
    expect(looks).toBe(1);
    const several = { ...recordingProvider(), serviceOf: (token: string) => token };
    await statesOf(test.jobs, several, CountedPauses).load();
    expect(looks).toBe(1);
  });
});
