/** WatchProgress beside real sending: it ends with the notification, and its last word is what HTTP says. */
import { type Client, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { beforeAll, describe, expect, it } from "vitest";
import {
  DeliveryService,
  type NotificationProgress,
  NotificationState,
} from "../../gen/proto/push/v1/delivery_pb.ts";
import { type ContractCall, contractCall } from "../support/contract-api.ts";
import { readContract } from "../support/contract-check.ts";
import { type PushServer, startPushServer } from "../support/push-server.ts";
import { backends } from "../support/servers.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";

const devices = 4;

describe.each(backends)("on %s", (backend) => {
  let server: PushServer;
  let call: ContractCall;
  let client: Client<typeof DeliveryService>;
  let as: string;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    server = await startPushServer(backend, { env: { PUSH_MAX_PER_SECOND: "1" } });
    cleanup.defer(() => server.stop());
    call = contractCall(server.origin, readContract("push-orchestration"));
    client = createClient(DeliveryService, createGrpcTransport({ baseUrl: `http://${server.grpc}` }));
    as = `Bearer ${await server.backofficeToken()}`;
    const user = `Bearer ${await server.userToken()}`;
    for (let index = 0; index < devices; index += 1) {
      const json = { token: `d-${index}`, expiration: "2100-01-01T00:00:00Z" };
      expect((await call("savePushToken", { as: user, json })).status).toBe(204);
    }
  });

  async function send(): Promise<string> {
    const json = { title: "Hello", message: "How are you?", utcOffsets: [0] };
    return (await call("sendPushNotification", { as, json })).headers.get("notification-id") ?? "";
  }

  /** Watches until the end, and holds every message to the sum that it promises. */
  async function watch(
    notificationId: string,
    react?: (progress: NotificationProgress) => unknown,
  ): Promise<NotificationProgress[]> {
    const all: NotificationProgress[] = [];
    for await (const { progress } of client.watchProgress(
      { notificationId },
      { headers: { authorization: as } },
    )) {
      if (!progress) throw new Error("a message without progress");
      const { planned, sent, failed, dropped, deadLettered, remaining } = progress;
      expect(sent + failed + dropped + deadLettered + remaining).toBe(planned);
      all.push(progress);
      await react?.(progress);
    }
    return all;
  }

  it("shows it go out, and ends when it is completed", async () => {
    const id = await send();
    const all = await watch(id);
    expect(all[0]?.completedAt).toBeUndefined();
    expect(all.length).toBeGreaterThan(1);
    const last = all.at(-1);
    expect(last).toMatchObject({ id, state: NotificationState.COMPLETED, sent: devices, remaining: 0 });
    const { body } = await call("getNotification", { as, path: { id } });
    const { planned, recipients, completedAt } = Object(body);
    expect(last).toMatchObject({ planned, recipients, completedAt });
    expect((await watch(id)).map(({ state }) => state)).toEqual([NotificationState.COMPLETED]);
  });

  it("shows it paused and resumed, and ends when it is cancelled", async () => {
    const id = await send();
    const controls = ["pauseNotification", "resumeNotification", "cancelNotification"];
    let wasPaused = false;
    const all = await watch(id, async ({ state }) => {
      // The second control waits until the first is seen; the others follow what is seen next.
      wasPaused ||= state === NotificationState.PAUSED;
      if (controls.length === 2 && !wasPaused) return;
      const operation = controls.shift();
      if (operation) expect((await call(operation, { as, path: { id } })).status).toBe(200);
    });
    expect(wasPaused).toBe(true);
    expect(all.at(-1)).toMatchObject({ state: NotificationState.CANCELLED, remaining: 0 });
    expect(all.at(-1)?.completedAt).toBeDefined();
  });
});
