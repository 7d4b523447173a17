/** What waits for a provider to answer anybody, and who tells it: whichever process heard the answer. */
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { Database } from "../../../src/platform/database/database.ts";
import { deliveryRules } from "../../../src/push/delivery/delivery-rules.ts";
import { ProviderPauses } from "../../../src/push/delivery/provider-pauses.ts";
import { recordResponses } from "../../../src/push/delivery/removals.ts";
import { ServiceStates } from "../../../src/push/delivery/service-states.ts";
import type { PushProvider } from "../../../src/push/providers/provider.ts";
import { Processes } from "../../../src/push/queue/processes.ts";
import { wholeProvider } from "../../../src/push/queue/provider-rows.ts";
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
    db: Database = test.db,
    provider: PushProvider = recordingProvider(),
    Pauses = ProviderPauses,
  ): ServiceStates {
    const rules = { ...deliveryRules, evidenceMs: 60_000 };
    const { logger } = test.log;
    const [random, released] = [() => 0, () => undefined];
    const processes = new Processes({ db, leases: db, logger, released });
    const pauses = new Pauses({ db, provider: "fcm", processes, rules, random, released });
    return new ServiceStates({ provider, pauses, rules, random, logger });
  }

  const answer = async (states: ServiceStates) => {
    states.report(wholeProvider, "user", { kind: "sent" }, { at: performance.now(), hasFailedBefore: false });
    await states.stored();
  };

  it("that could not be told is told with the next one", async () => {
    const planned = await test.plan({ devices: 1 });
    await test.db.execute(sql`
      update push.delivery_chunks set state = 'WAITING', awaits = 'RESPONSE', due_at = now() + interval '10 minutes'
      where notification_id = ${planned.notificationId}::uuid`);
    const state = async () => (await test.chunks(planned))[0]?.state;
    let isAway = true;
    const states = statesOf(
      new Proxy(test.db, {
        get(db, name) {
          if (isAway)
            throw Object.assign(new Error("the connection has ended"), { code: "CONNECTION_CLOSED" });
          return Reflect.get(db, name);
        },
      }),
    );
    await answer(states);
    expect(await state()).toBe("WAITING");
    isAway = false;
    await answer(states);
    expect(await state()).toBe("READY");
  });

  it("to one process shows all of them that the provider works, for as long as it would that one", async () => {
    const states = statesOf();
    await states.load();
    expect(states.isHealthy(wholeProvider)).toBe(false);
    await recordResponses(test.db, "fcm", { users: new Map([["user", true]]), sent: [], dead: [] });
    await states.load();
    expect(states.isHealthy(wholeProvider)).toBe(true);
    await test.db.execute(
      sql`update push.provider_responses set responded_at = now() - interval '61 seconds'`,
    );
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
    await statesOf(test.db, recordingProvider(), CountedPauses).load();
    expect(looks).toBe(1);
    const several = { ...recordingProvider(), serviceOf: (token: string) => token };
    await statesOf(test.db, several, CountedPauses).load();
    expect(looks).toBe(1);
  });
});
