/** An operator steers a send, over HTTP, and watches it, over gRPC and Connect. */
import { setTimeout as delay } from "node:timers/promises";
import { Code, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import { beforeAll, describe, expect, it } from "vitest";
import { DeliveryService, NotificationState } from "../../../gen/proto/push/v1/delivery_pb.ts";
import type { PushProcess } from "../../support/push-server.ts";
import { worldOffsets } from "../../support/send-audience.ts";
import { backends } from "../../support/servers.ts";
import { stopwatch } from "../../support/stopwatch.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { apiOf, discrepancies, lookAllTheTime, type Operator, operatorOf, until } from "./operator.ts";
import { createWorld, type World } from "./world.ts";

const devices = 2_400;
const users = 1_000;
/** Milliseconds after which nothing more arrives: a worker looks four times in them, and what it has begun is sent. */
const stillMs = 1_000;

function nameOf(state: NotificationState): string {
  return Object.entries(NotificationState).find(([, value]) => value === state)?.[0] ?? String(state);
}

describe.each(backends)("on %s", (backend) => {
  let world: World;
  let server: PushProcess;
  let operator: Operator;
  let transports: Record<string, Transport>;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    world = await createWorld(backend, {
      env: { PUSH_MAX_PER_SECOND: "400" },
      audience: { devices, users },
    });
    cleanup.defer(() => world.end());
    server = await world.start();
    operator = await operatorOf(server);
    transports = {
      gRPC: createGrpcTransport({ baseUrl: `http://${server.grpc}` }),
      Connect: createConnectTransport({ baseUrl: server.origin, httpVersion: "1.1" }),
    };
  });

  const watchers = () =>
    Object.values(transports).map((transport) => createClient(DeliveryService, transport).watchProgress);

  /** Watches to the end. @returns the states so far, in their order, and at the end what did not add up */
  function watched(watch: ReturnType<typeof watchers>[number], notificationId: string) {
    const states: string[] = [];
    async function problemsOf() {
      const problems = new Set<string>();
      const headers = { authorization: operator.as };
      for await (const { progress } of watch({ notificationId }, { headers })) {
        if (!progress) continue;
        const state = nameOf(progress.state);
        // The watch looks twice a second: the short time of planning may not be among what it saw.
        if (state !== "PLANNING" && states.at(-1) !== state) states.push(state);
        const breakdown = progress.breakdown.map((part) => ({ ...part, provider: "fcm" as const }));
        for (const problem of discrepancies({ ...progress, breakdown })) problems.add(problem);
      }
      return [...problems];
    }
    return { states, problems: problemsOf() };
  }

  /**
   * @returns a check that no message arrived later than a second from now; it waits until two have passed. Time in which
   * this process, which receives the messages, had no processor is added to the second.
   */
  function stillFromNow(): () => Promise<void> {
    const [from, counted] = [Date.now(), stopwatch()];
    const held = delay(2 * stillMs).then(() => Date.now() - from - counted());
    return async () => {
      const heldMs = await held;
      expect((world.fcm.ledger.summary().lastAt ?? 0) - from).toBeLessThanOrEqual(stillMs + heldMs);
    };
  }

  it("pause stops the flow within a second, and resume goes on where it was", async () => {
    const { ledger } = world.fcm;
    ledger.clear();
    const id = await operator.send();
    const stopLooking = lookAllTheTime(operator, id);
    const watching = watchers().map((watch) => watched(watch, id));
    await until("a part is sent, and is seen", () =>
      [ledger.summary().messages > 400, ...watching.map(({ states }) => states.length > 0)].every(Boolean),
    );

    expect(await operator.pause(id)).toMatchObject({ id, state: "PAUSED", completedAt: null });
    const expectStill = stillFromNow();
    await expectStill();
    const { messages } = ledger.summary();
    await delay(1_500);
    expect(ledger.summary().messages).toBe(messages);
    expect(messages).toBeLessThan(devices);
    // What is written down is what was sent.
    expect(await operator.progress(id)).toMatchObject({ state: "PAUSED", sent: messages });
    expect(await operator.pause(id)).toMatchObject({ state: "PAUSED" });

    expect(["PLANNING", "SENDING"]).toContain((await operator.resume(id)).state);
    expect(await operator.ended(id)).toMatchObject({
      ...{ state: "COMPLETED", recipients: users, planned: devices, sent: devices, remaining: 0 },
    });
    expect(ledger.summary()).toMatchObject({ tokens: devices, messages: devices, repeats: 0 });
    const looks = await stopLooking();
    expect(looks.problems).toEqual([]);
    expect(looks.states.filter((state) => state !== "PLANNING")).toEqual([
      "SENDING",
      "PAUSED",
      "SENDING",
      "COMPLETED",
    ]);
    for (const { states, problems } of watching) {
      expect(await problems).toEqual([]);
      expect(states).toEqual(["SENDING", "PAUSED", "SENDING", "COMPLETED"]);
    }
  });

  it("cancel ends it for good: what was not sent is dropped, and counted", async () => {
    const { ledger } = world.fcm;
    ledger.clear();
    const id = await operator.send();
    const stopLooking = lookAllTheTime(operator, id);
    const watching = watchers().map((watch) => watched(watch, id));
    await until("a part is sent", () => ledger.summary().messages > 400);

    expect(await operator.cancel(id)).toMatchObject({ id, state: "CANCELLED" });
    const [cancelledAt, expectStill] = [Date.now(), stillFromNow()];
    const ended = await operator.ended(id);
    expect(Date.now() - cancelledAt).toBeLessThan(10_000);
    const { messages, tokens, repeats } = ledger.summary();
    expect({ tokens, repeats }).toEqual({ tokens: messages, repeats: 0 });
    expect(messages).toBeLessThan(devices);
    await expectStill();
    expect(ended).toMatchObject({
      ...{ state: "CANCELLED", planned: devices, sent: messages, dropped: devices - messages },
      ...{ failed: 0, deadLettered: 0, remaining: 0 },
    });
    for (const operation of ["pauseNotification", "resumeNotification", "cancelNotification"]) {
      const answer = await operator.call(operation, { as: operator.as, path: { id } });
      expect([answer.status, Object(answer.body).code]).toEqual([409, "notification_finished"]);
    }
    expect(ledger.summary().messages).toBe(messages);
    expect((await stopLooking()).problems).toEqual([]);
    for (const { states, problems } of watching) {
      expect(await problems).toEqual([]);
      expect(states.at(-1)).toBe("CANCELLED");
    }
  });

  it("is for the back office only", async () => {
    const id = await operator.send({ utcOffsets: [75] });
    const { call } = apiOf(server);
    const user = `Bearer ${await server.userToken()}`;
    const callers = [
      { as: user, status: 403, code: Code.PermissionDenied },
      { as: undefined, status: 401, code: Code.Unauthenticated },
      { as: "Bearer garbled", status: 401, code: Code.Unauthenticated },
    ];
    const operations: [string, object][] = [
      ["getNotification", { path: { id } }],
      ["pauseNotification", { path: { id } }],
      ["resumeNotification", { path: { id } }],
      ["cancelNotification", { path: { id } }],
      ["listNotifications", {}],
      ["sendPushNotification", { json: { title: "t", message: "m", utcOffsets: worldOffsets } }],
    ];
    for (const { as, status, code } of callers) {
      const authorization = as === undefined ? {} : { as };
      for (const [operation, options] of operations) {
        const answer = await call(operation, { ...options, ...authorization });
        expect([operation, answer.status]).toEqual([operation, status]);
      }
      for (const watch of watchers()) {
        const headers = as === undefined ? {} : { authorization: as };
        const refused = await (async () => {
          for await (const _ of watch({ notificationId: id }, { headers })) return undefined;
          return undefined;
        })().catch((error: unknown) => ConnectError.from(error).code);
        expect(refused).toBe(code);
      }
    }
    // Nobody of them has done anything.
    expect(await operator.ended(id)).toMatchObject({ state: "COMPLETED", planned: 0 });
    expect((await operator.list()).content[0]?.id).toBe(id);
  });
});
