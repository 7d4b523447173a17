/** NotificationService in every protocol: the messages are the bodies of HTTP, with the same errors. */
import { once } from "node:events";
import http from "node:http";
import { Code, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from "@connectrpc/connect-node";
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import {
  ExclusionReason,
  MessageOutcome,
  NotificationService,
} from "../../gen/proto/push/v1/notifications_pb.ts";
import { contractTexts, loadContract } from "../../src/platform/openapi/document.ts";
import { notificationNotFound, wrongApplication } from "../../src/push/errors.ts";
import { readNotification } from "../../src/push/notifications/read-notification.ts";
import { notificationRpc } from "../../src/push/rpc.ts";
import { type RpcServers, startRpcServers } from "../support/rpc-servers.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";
import { id, preview } from "./http-fixture.ts";

const headers = { authorization: "Bearer office" };
const asked: unknown[] = [];
let servers: RpcServers;
let transports: Record<string, Transport>;
const cleanup = suiteCleanup();
beforeAll(async () => {
  const callers = {
    async backoffice(authorization: string | undefined) {
      if (authorization === "Bearer user") throw wrongApplication();
      return authorization === headers.authorization ? { clientId: "office" } : undefined;
    },
  };
  const service = notificationRpc({
    callers,
    document: await loadContract(contractTexts("push-orchestration")),
    sending: {
      problems: (written) => readNotification(written, Date.now()).errors,
      async create(...values) {
        asked.push(...values);
        return { id, warnings: [{ pointer: "/body", message: "is odd" }] };
      },
      async preview(written) {
        asked.push(written);
        const excluded = [{ reason: "NO_DEVICE", devices: 1 }] as const;
        return { ...preview, excluded, finishesAt: "2026-11-21T09:30:02.000Z" };
      },
      async recipients(wanted, page) {
        if (wanted !== id) throw notificationNotFound();
        asked.push(wanted, page);
        const sent = { user: "u", provider: "fcm", at: "2026-11-21T09:30:00.317Z" } as const;
        const content = [
          { ...sent, outcome: "SENT", reason: null } as const,
          { ...sent, outcome: "FAILED", reason: "404 UNREGISTERED" } as const,
        ];
        return { content, number: 1, size: 2, totalElements: 4 };
      },
    },
  });
  servers = await startRpcServers({ services: [service] });
  cleanup.defer(() => servers.close());
  const web = { baseUrl: `http://127.0.0.1:${servers.http1Port}`, httpVersion: "1.1" } as const;
  transports = {
    gRPC: createGrpcTransport({ baseUrl: `http://127.0.0.1:${servers.grpcPort}` }),
    Connect: createConnectTransport({ ...web, useBinaryFormat: false }),
    "gRPC-Web": createGrpcWebTransport(web),
  };
});
beforeEach(() => {
  asked.length = 0;
});

const failure = async (call: Promise<unknown>) =>
  ConnectError.from(
    await call.then(
      () => undefined,
      (error) => error,
    ),
  );
const texts = { en: { title: "Hello", message: "How are you?" } };
const toUser = { audience: { users: ["u-1"] }, content: { texts } };

describe.each(["gRPC", "Connect", "gRPC-Web"])("%s", (protocol) => {
  const client = () => {
    const transport = transports[protocol];
    if (!transport) throw new Error(`no transport ${protocol}`);
    return createClient(NotificationService, transport);
  };

  it("reads a message as the body of JSON that it maps to", async () => {
    const created = await client().createNotification(
      {
        audience: {
          personal: [{ user: "u", variables: { name: "Ada" } }],
        },
        content: {
          texts: { en: { title: "{{name}}", message: "m" } },
          ...{ data: { a: "b" }, badge: 0, interruptionLevel: "time-sensitive", tooLong: "refuse" },
        },
        delivery: { priority: "normal", ttlSeconds: 60, maxPerSecond: 5, history: false, collapseId: "c" },
      },
      { headers: { ...headers, "idempotency-key": "k" } },
    );
    expect(created).toMatchObject({ id, warnings: [{ pointer: "/body", message: "is odd" }] });
    expect(asked).toEqual([
      "office",
      {
        audience: { personal: [{ user: "u", variables: { name: "Ada" } }] },
        content: {
          texts: { en: { title: "{{name}}", message: "m" } },
          ...{ data: { a: "b" }, badge: 0, interruptionLevel: "time-sensitive", tooLong: "refuse" },
        },
        delivery: { priority: "normal", ttlSeconds: 60, maxPerSecond: 5, history: false, collapseId: "c" },
      },
      "k",
    ]);
  });

  it("shows a preview", async () => {
    const audience = {
      anyOf: [{ languages: ["de"], utcOffsets: [-330], platforms: ["ios"] }],
      everybody: true,
    };
    const shown = await client().previewNotification({ audience, content: { texts } }, { headers });
    expect(shown).toMatchObject({
      ...{ users: 1, devices: 2, isEstimate: false, finishesAt: "2026-11-21T09:30:02.000Z" },
      breakdown: [{ provider: "fcm", language: "de", platform: "ios", devices: 2 }],
      excluded: [{ reason: ExclusionReason.NO_DEVICE, devices: 1 }],
      payloads: [{ provider: "fcm", language: "de", bytes: 200, limit: 4096, isShortened: false }],
    });
    expect(asked).toEqual([{ audience, content: { texts }, delivery: undefined }]);
  });

  it("lists recipients", async () => {
    const page = await client().listRecipients(
      { notificationId: id.toUpperCase(), page: 1, size: 2 },
      { headers },
    );
    expect(page).toMatchObject({ number: 1, size: 2, totalElements: 4 });
    expect(page.content.map(({ outcome, reason }) => [outcome, reason])).toEqual([
      [MessageOutcome.SENT, undefined],
      [MessageOutcome.FAILED, "404 UNREGISTERED"],
    ]);
    await client().listRecipients({ notificationId: id }, { headers });
    await client().listRecipients({ notificationId: id, size: 500 }, { headers });
    const pages = [
      { page: 1, size: 2 },
      { page: 0, size: 20 },
      { page: 0, size: 100 },
    ];
    expect(asked).toEqual(pages.flatMap((page) => [id, page]));
    for (const wrong of [
      { notificationId: "x" },
      { notificationId: id, page: 1_000_001 },
      { notificationId: id, size: 0 },
    ])
      expect((await failure(client().listRecipients(wrong, { headers }))).code).toBe(Code.InvalidArgument);
    const other = { notificationId: id.replace("0", "1") };
    expect((await failure(client().listRecipients(other, { headers }))).code).toBe(Code.NotFound);
  });

  it("refuses who may not, before it looks at the request", async () => {
    const calls = [
      (options: object) => client().createNotification({}, options),
      (options: object) => client().previewNotification({}, options),
      (options: object) => client().listRecipients({}, options),
    ];
    for (const call of calls) {
      expect((await failure(call({}))).code).toBe(Code.Unauthenticated);
      const ofUser = { headers: { authorization: "Bearer user" } };
      expect((await failure(call(ofUser))).code).toBe(Code.PermissionDenied);
    }
  });

  it("names every place that is wrong, as over HTTP", async () => {
    const wrong = {
      audience: { anyOf: [{}, { languages: ["jp"], platforms: ["tv"] }] },
      content: { texts, data: { from: "x" } },
      delivery: { ttlSeconds: 1 },
    };
    const { code, rawMessage } = await failure(client().createNotification(wrong, { headers }));
    expect(code).toBe(Code.InvalidArgument);
    expect(rawMessage.match(/\/body\/[^ ]*/g)?.toSorted()).toEqual([
      "/body/audience/anyOf/0",
      "/body/audience/anyOf/1/languages/0",
      "/body/audience/anyOf/1/platforms/0",
      "/body/content/data/from",
      "/body/delivery/ttlSeconds",
    ]);
    const none = await failure(client().createNotification({}, { headers }));
    expect(none.rawMessage).toBe(
      "The request is not valid: /body/audience is required. Also: /body/content is required.",
    );
    const nul = { ...toUser, audience: { users: ["a\0b"] } };
    expect((await failure(client().createNotification(nul, { headers }))).rawMessage).toContain("NUL");
    const longKey = { headers: { ...headers, "idempotency-key": "k".repeat(256) } };
    const key = await failure(client().createNotification(toUser, longKey));
    expect(key.rawMessage).toContain("/header/idempotency-key");
    expect(asked).toEqual([]);
  });

  it("takes a notification of up to 1 MiB, and of any other method 64 KiB", async () => {
    const users = (length: number) => ({
      ...toUser,
      audience: { users: Array(length).fill("u".repeat(128)) },
    });
    expect((await client().createNotification(users(7_500), { headers })).id).toBe(id);
    const long = await failure(client().previewNotification(users(8_200), { headers }));
    expect(long.code).toBe(Code.ResourceExhausted);
    const other = client().listRecipients({ notificationId: "x".repeat(70_000) }, { headers });
    expect((await failure(other)).code).toBe(Code.ResourceExhausted);
  });
});

it("reads no message of a caller who may not send it", async () => {
  const request = http.request({
    ...{ host: "127.0.0.1", port: servers.http1Port, method: "POST" },
    path: "/push.v1.NotificationService/CreateNotification",
    headers: { "content-type": "application/json", "content-length": 1_000_000 },
  });
  request.flushHeaders();
  const [response] = await once(request, "response");
  expect(response.statusCode).toBe(401);
  request.destroy();
});

it("says in a status only as much as clients take", async () => {
  const users = Array.from({ length: 30 }, (_, index) => `${index}`.padEnd(120, "u"));
  const personal = users.map((user) => ({ user, variables: {} }));
  const content = { texts: { en: { title: "{{name}}", message: "m" } } };
  for (const transport of Object.values(transports)) {
    const call = createClient(NotificationService, transport).createNotification(
      { audience: { personal }, content, delivery: { ttlSeconds: 1 } },
      { headers },
    );
    const { code, rawMessage } = await failure(call);
    expect(code).toBe(Code.InvalidArgument);
    expect(rawMessage).toContain("/body/audience/personal/1/variables/name is required");
    expect(rawMessage.length).toBeLessThan(2_500);
  }
});

it.each([
  ["exceptUser", { audience: { everybody: true, exceptUser: ["u-1"] }, content: { texts } }],
  ["platform", { audience: { anyOf: [{ platform: ["ios"] }] }, content: { texts } }],
])(
  "refuses JSON with a member that the message has not, %s, and sends to nobody",
  async (member, request) => {
    const url = `http://127.0.0.1:${servers.http1Port}/push.v1.NotificationService/CreateNotification`;
    const response = await fetch(url, {
      method: "POST",
      headers: { ...headers, "content-type": "application/json" },
      body: JSON.stringify(request),
    });
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({
      code: "invalid_argument",
      message: expect.stringContaining(`"${member}"`),
    });
    expect(asked).toEqual([]);
  },
);
