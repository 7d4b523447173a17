/** WatchProgress in every protocol: who may watch, what is streamed, and when it ends. */
import { setTimeout as delay } from "node:timers/promises";
import { Code, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from "@connectrpc/connect-node";
import { beforeAll, describe, expect, it } from "vitest";
import { DeliveryService, NotificationState } from "../../gen/proto/push/v1/delivery_pb.ts";
import { unavailable } from "../../src/platform/base/errors.ts";
import { notificationNotFound, wrongApplication } from "../../src/push/errors.ts";
import type { NotificationProgress } from "../../src/push/notifications/progress.ts";
import { createWatchProgress } from "../../src/push/notifications/watch-progress.ts";
import { pushRpc } from "../../src/push/rpc.ts";
import { type RpcServers, startRpcServers } from "../support/rpc-servers.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";
import { atRest, waitFor } from "../support/wait-for.ts";

const intervalMs = 100;
const office = { authorization: "Bearer office" };
const id = (last: number) => `019aa4b1-9d3c-7a52-8c11-${String(last).padStart(12, "0")}`;

function progress(changes: Partial<NotificationProgress> = {}): NotificationProgress {
  return {
    ...{ id: id(1), title: "t", message: "m", image: null, test: false, state: "SENDING" },
    ...{ acceptedAt: "2026-11-21T09:30:00.000Z", completedAt: null, recalledAt: null, removalStopped: false },
    ...{ recipients: 3, planned: 4, sent: 1, failed: 0, dropped: 0, deadLettered: 0, remaining: 3 },
    notice: undefined,
    breakdown: [
      {
        ...{ utcOffset: -330, provider: "fcm", planned: 4 },
        ...{ sent: 1, failed: 0, dropped: 0, deadLettered: 0, remaining: 3 },
      },
    ],
    ...changes,
  };
}

const completed = { state: "COMPLETED", completedAt: "2026-11-21T09:30:02.000Z", sent: 4 } as const;
const ended = progress({ ...completed, remaining: 0 });

/** How each notification stands, and how often it was looked at. */
const standing = new Map<string, () => NotificationProgress>();
const looks = new Map<string, number>();
/** What the check of the token "later" comes to. */
let later: () => { clientId: string } | undefined = () => ({ clientId: "office" });

let servers: RpcServers;
let transports: Record<string, Transport>;
const cleanup = suiteCleanup();
beforeAll(async () => {
  const watchProgress = createWatchProgress({
    intervalMs,
    notifications: {
      async get(wanted) {
        looks.set(wanted, (looks.get(wanted) ?? 0) + 1);
        const found = standing.get(wanted);
        if (!found) throw notificationNotFound();
        return found();
      },
    },
  });
  const callers = {
    user: async () => undefined,
    async backoffice(authorization: string | undefined) {
      if (authorization === "Bearer user") throw wrongApplication();
      if (authorization === "Bearer later") return later();
      if (authorization === "Bearer unchecked") throw unavailable("The identity provider", new Error("away"));
      return authorization === office.authorization ? { clientId: "office" } : undefined;
    },
  };
  servers = await startRpcServers({ services: [pushRpc({ callers, watchProgress, checkMs: 50 })] });
  cleanup.defer(() => servers.close());
  const web = { baseUrl: `http://127.0.0.1:${servers.http1Port}`, httpVersion: "1.1" } as const;
  transports = {
    gRPC: createGrpcTransport({ baseUrl: `http://127.0.0.1:${servers.grpcPort}` }),
    Connect: createConnectTransport(web),
    "gRPC-Web": createGrpcWebTransport(web),
  };
});

function watch(protocol: string, notificationId: string, options: object = { headers: office }) {
  const transport = transports[protocol];
  if (!transport) throw new Error(`no transport ${protocol}`);
  return createClient(DeliveryService, transport).watchProgress({ notificationId }, options);
}

async function failure(stream: AsyncIterable<unknown>): Promise<ConnectError> {
  try {
    for await (const _ of stream);
  } catch (error) {
    return ConnectError.from(error);
  }
  throw new Error("the stream ended well");
}

describe.each(["gRPC", "Connect", "gRPC-Web"])("%s", (protocol) => {
  it("refuses who has no token, one of another application, or one that cannot be checked", async () => {
    const none = await failure(watch(protocol, id(1), {}));
    expect([none.code, none.rawMessage]).toEqual([
      Code.Unauthenticated,
      "Credentials are missing or wrong. Send an access token in the authorization metadata, scheme Bearer.",
    ]);
    const as = async (authorization: string) =>
      (await failure(watch(protocol, id(1), { headers: { authorization } }))).code;
    expect(await as("Bearer wrong")).toBe(Code.Unauthenticated);
    expect(await as("Bearer user")).toBe(Code.PermissionDenied);
    expect(await as("Bearer unchecked")).toBe(Code.Unavailable);
  });

  it("refuses an id that is none, and one that nobody has", async () => {
    for (const bad of ["", "x", `${id(1)} `, `urn:uuid:${id(1)}`]) {
      expect((await failure(watch(protocol, bad))).code).toBe(Code.InvalidArgument);
    }
    expect((await failure(watch(protocol, id(404)))).code).toBe(Code.NotFound);
  });

  it("tells how it stands at once, then each change, and ends with the final state", async () => {
    let now = progress({ image: "a.png" });
    standing.set(id(2), () => now);
    const states: unknown[] = [];
    for await (const { progress: seen } of watch(protocol, id(2).toUpperCase())) {
      states.push([seen?.state, seen?.sent, seen?.image, seen?.completedAt, seen?.breakdown[0]?.utcOffset]);
      // Several looks in which nothing changes, and two changes between two looks.
      if (states.length === 1) {
        void delay(intervalMs * 3).then(() => {
          now = progress({ state: "PAUSED", sent: 2 });
          now = progress({ state: "PAUSED", sent: 3 });
        });
      } else if (states.length === 2) now = ended;
    }
    expect(states).toEqual([
      [NotificationState.SENDING, 1, "a.png", undefined, -330],
      [NotificationState.PAUSED, 3, undefined, undefined, -330],
      [NotificationState.COMPLETED, 4, undefined, "2026-11-21T09:30:02.000Z", -330],
    ]);
  });

  it("tells of one that has ended, and ends", async () => {
    standing.set(id(3), () => ended);
    const seen: unknown[] = [];
    for await (const message of watch(protocol, id(3))) seen.push(message.progress?.state);
    expect(seen).toEqual([NotificationState.COMPLETED]);
  });

  it("ends when its token is no longer good, though nothing changes", async () => {
    standing.set(id(7), () => progress());
    const refusals: [Code, typeof later][] = [
      [Code.Unauthenticated, () => undefined],
      [
        Code.PermissionDenied,
        () => {
          throw wrongApplication();
        },
      ],
      [
        Code.Unavailable,
        () => {
          throw unavailable("The identity provider", new Error("away"));
        },
      ],
    ];
    for (const [code, refuse] of refusals) {
      later = () => ({ clientId: "office" });
      const looked = looks.get(id(7)) ?? 0;
      const ending = failure(watch(protocol, id(7), { headers: { authorization: "Bearer later" } }));
      await waitFor(() => expect(looks.get(id(7))).toBeGreaterThan(looked));
      later = refuse;
      expect((await ending).code).toBe(code);
    }
  });

  it("looks no more when nobody watches any more", async () => {
    let sent = 0;
    standing.set(id(4), () => {
      sent += 1;
      return progress({ sent });
    });
    const leaving = new AbortController();
    const stream = watch(protocol, id(4), { headers: office, signal: leaving.signal });
    const left = failure(stream);
    await waitFor(() => expect(looks.get(id(4))).toBeGreaterThan(2));
    leaving.abort();
    expect((await left).code).toBe(Code.Canceled);
    await atRest(() => looks.get(id(4)) ?? 0);
  });
});

describe("many who watch the same notification", () => {
  it("share one poll, see the same, and may come and go", async () => {
    let [sent, joined] = [0, 0];
    standing.set(id(5), () => {
      sent += 1;
      return joined < 60 ? progress({ sent }) : ended;
    });
    looks.clear();
    const startedAt = performance.now();
    const protocols = Object.keys(transports);
    const watchers = Array.from({ length: 60 }, async (_, index) => {
      const seen: number[] = [];
      for await (const message of watch(protocols[index % 3] ?? "", id(5))) {
        if (seen.length === 0) joined += 1;
        seen.push(message.progress?.remaining === 0 ? -1 : (message.progress?.sent ?? 0));
        if (index % 10 === 0) break;
      }
      return seen;
    });
    const all = await Promise.all(watchers);
    expect(looks.get(id(5))).toBeLessThanOrEqual((performance.now() - startedAt) / intervalMs + 1);
    const stayed = all.filter((_, index) => index % 10 !== 0);
    for (const seen of stayed) {
      // Later ones may miss the first states, but none is told out of order or twice, and all see the end.
      expect(seen.at(-1)).toBe(-1);
      expect(seen.slice(0, -1)).toEqual(seen.slice(0, -1).toSorted((a, b) => a - b));
      expect(new Set(seen.slice(0, -1)).size).toBe(seen.length - 1);
    }
  });

  it("all learn that the progress cannot be read, and who comes later begins anew", async () => {
    let isAway = false;
    standing.set(id(6), () => {
      if (isAway) throw unavailable("The database", new Error("ECONNREFUSED"));
      return progress();
    });
    const watchers = Array.from({ length: 3 }, () => failure(watch("gRPC", id(6))));
    await waitFor(() => expect(looks.get(id(6))).toBeGreaterThan(1));
    isAway = true;
    expect((await Promise.all(watchers)).map(({ code }) => code)).toEqual(Array(3).fill(Code.Unavailable));
    standing.set(id(6), () => ended);
    for await (const message of watch("gRPC", id(6))) {
      expect(message.progress?.state).toBe(NotificationState.COMPLETED);
    }
  });
});
