/** Scenarios work the same with all fakes; these tests use that of FCM. */
import { once } from "node:events";
import type { ClientHttp2Session } from "node:http2";
import { setTimeout as elapsed } from "node:timers/promises";
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { type FcmFake, startFcmFake } from "../../../src/development/provider-fakes/fcm/fcm.ts";
import type { Scenario } from "../../../src/development/provider-fakes/scenario.ts";
import { movableClock } from "../../support/movable-clock.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";
import { accessToken, fcmMessage, send, session } from "./clients.ts";

const clock = movableClock();
let fake: FcmFake;
let bearer: string;

const cleanup = suiteCleanup();
beforeAll(async () => {
  fake = await startFcmFake({ clock, accessTokenSeconds: 1_000_000 });
  cleanup.defer(() => fake.close());
  bearer = await accessToken(fake.credentials);
});
afterEach(() => fake.clear());

function post(token: string, client: ClientHttp2Session = session(fake.origin), messageId?: string) {
  const path = `/v1/projects/${fake.credentials.project_id}/messages:send`;
  const headers = { ":method": "POST", ":path": path, authorization: `Bearer ${bearer}` };
  return send(client, headers, JSON.stringify({ message: fcmMessage(token, messageId) }));
}

async function statuses(tokens: readonly string[]): Promise<number[]> {
  const client = session(fake.origin);
  return Promise.all(tokens.map(async (token) => (await post(token, client)).status));
}

const many = Array.from({ length: 400 }, (_, at) => `device-${at}`);
const messages = () => fake.ledger.summary().messages;

describe("a message that comes again", () => {
  it.each<[string, Parameters<FcmFake["play"]>[0][], { answered: boolean; ended: boolean }]>([
    ["after an answer", [], { answered: true, ended: false }],
    ["after none", [{ fault: "reset-after-accept", times: 1 }], { answered: false, ended: false }],
    [
      "after its connection broke",
      [{ fault: "disconnect-after-accept", times: 1 }],
      { answered: false, ended: true },
    ],
  ])("is told from others: %s", async (_, scenarios, expected) => {
    for (const scenario of scenarios) fake.play(scenario);
    const client = session(fake.origin);
    await post("device-1", client, "1").catch(() => undefined);
    if (expected.ended) await waitFor(() => expect(client.destroyed).toBe(true));
    await post("device-1", client.destroyed ? session(fake.origin) : client, "1");
    const [repeat] = fake.ledger.repeats();
    const { answeredAt, endedAt, isPending } = repeat?.before ?? {};
    const [answered, ended] = [answeredAt, endedAt].map((at) => typeof at === "number");
    expect({ answered, ended, isPending }).toEqual({ ...expected, isPending: false });
  });

  it("is told from others: while its sender still waits", async () => {
    fake.play({ delayMs: 60_000, times: 1 });
    void post("device-1", session(fake.origin), "1").catch(() => undefined);
    await waitFor(() => expect(messages()).toBe(1));
    await post("device-1", session(fake.origin), "1");
    expect(fake.ledger.repeats()).toMatchObject([{ before: { answeredAt: null, isPending: true } }]);
  });
});

describe("who is concerned", () => {
  it("tokens that begin so", async () => {
    fake.play({ answer: "UNREGISTERED", tokenPrefix: "old-" });
    expect(await statuses(["old-1", "new-1", "older", "an-old-1"])).toEqual([404, 200, 200, 200]);
  });

  it("tokens that match", async () => {
    fake.play({ answer: "UNREGISTERED", tokenPattern: "[13]$" });
    expect(await statuses(["a1", "a2", "a3"])).toEqual([404, 200, 404]);
  });

  it("the next n requests", async () => {
    const playing = fake.play({ answer: "INTERNAL", times: 2 });
    const client = session(fake.origin);
    const seen = [];
    for (const token of ["a", "b", "c"]) seen.push((await post(token, client)).status);
    expect(seen).toEqual([500, 500, 200]);
    expect(playing.played).toBe(2);
    expect(fake.playing()).toEqual([]);
  });

  it("requests for so many seconds, or until a time", async () => {
    fake.play({ answer: "INTERNAL", seconds: 60 });
    fake.play({ answer: "UNAVAILABLE", until: new Date(clock.now() + 90_000).toISOString() });
    const seen = [];
    for (const move of [59, 1, 29, 1]) {
      clock.move(move);
      seen.push(...(await statuses(["a"])));
    }
    expect(seen).toEqual([500, 503, 503, 200]);
  });

  it("a share of requests, at random", async () => {
    fake.play({ answer: "INTERNAL", share: 0.5 });
    const failed = (await statuses(many)).filter((status) => status === 500).length;
    expect(failed).toBeGreaterThan(120);
    expect(failed).toBeLessThan(280);
  });

  it("a share of tokens, always the same ones", async () => {
    const playing = fake.play({ answer: "UNREGISTERED", share: 0.3, shareOf: "tokens" });
    const first = await statuses(many);
    const dead = first.filter((status) => status === 404).length;
    expect(dead).toBeGreaterThan(80);
    expect(dead).toBeLessThan(160);
    expect(await statuses(many)).toEqual(first);
    playing.stop();
    fake.play({ answer: "UNREGISTERED", share: 0.6, shareOf: "tokens" });
    const later = await statuses(many);
    expect(first.every((status, at) => status === 200 || later[at] === 404)).toBe(true);
  });

  it("nobody after it was stopped", async () => {
    const playing = fake.play({ answer: "INTERNAL" });
    expect(await statuses(["a"])).toEqual([500]);
    playing.stop();
    expect(await statuses(["a"])).toEqual([200]);
  });

  it("the first scenario that fits wins", async () => {
    fake.play({ answer: "UNREGISTERED", tokenPrefix: "b" });
    fake.play({ answer: "INTERNAL" });
    expect(await statuses(["a", "b"])).toEqual([500, 404]);
  });

  it("not invalid requests: they get the provider's error response", async () => {
    const playing = fake.play({ answer: "INTERNAL" });
    expect(await statuses(["no token"])).toEqual([400]);
    expect(playing.played).toBe(0);
  });
});

describe("what happens", () => {
  it("Retry-After, in seconds or as a date", async () => {
    fake.play({ answer: "QUOTA_EXCEEDED", retryAfter: 7, times: 1 });
    fake.play({ answer: "UNAVAILABLE", retryAfter: "Wed, 21 Oct 2026 07:28:00 GMT" });
    const client = session(fake.origin);
    expect((await post("a", client)).headers["retry-after"]).toBe("7");
    expect((await post("a", client)).headers["retry-after"]).toBe("Wed, 21 Oct 2026 07:28:00 GMT");
  });

  it("a custom response", async () => {
    fake.play({ answer: { status: 418, headers: { "x-odd": "1" }, body: "short and stout" } });
    expect(await post("a")).toMatchObject({
      status: 418,
      text: "short and stout",
      headers: { "x-odd": "1" },
    });
  });

  it("a delay, of accepted messages and of answers", async () => {
    fake.play({ delayMs: 120 });
    fake.play({ answer: "INTERNAL", tokenPrefix: "b" });
    const client = session(fake.origin);
    const started = performance.now();
    const slow = post("a", client);
    await post("b", client);
    expect((await slow).status).toBe(200);
    expect(performance.now() - started).toBeGreaterThan(115);
    expect(messages()).toBe(1);
  });

  it("no response at all, and nothing recorded", async () => {
    fake.play({ fault: "timeout", tokenPrefix: "a" });
    const client = session(fake.origin);
    const outcome = await Promise.race([post("a", client).catch(() => "ended"), elapsed(150, "waiting")]);
    expect(outcome).toBe("waiting");
    expect((await post("b", client)).status).toBe(200);
    expect(messages()).toBe(1);
  });

  it.each([
    ["reset", 0],
    ["reset-after-accept", 1],
  ] as const)("%s ends the stream and no other; %i recorded", async (fault, recorded) => {
    fake.play({ fault, times: 1 });
    const client = session(fake.origin);
    await expect(post("a", client)).rejects.toThrow("NGHTTP2_INTERNAL_ERROR");
    expect(messages()).toBe(recorded);
    expect((await post("a", client)).status).toBe(200);
  });

  it.each([
    ["disconnect", 0],
    ["disconnect-after-accept", 1],
  ] as const)("%s cuts the connection; %i recorded", async (fault, recorded) => {
    fake.play({ fault, times: 1 });
    const client = session(fake.origin);
    const closed = once(client, "close");
    await expect(post("a", client)).rejects.toThrow();
    await closed;
    expect(messages()).toBe(recorded);
    expect(await statuses(["a"])).toEqual([200]);
  });

  it("GOAWAY lets open requests finish, with code 0", async () => {
    fake.play({ fault: "goaway", times: 1 });
    const client = session(fake.origin);
    const goaway = once(client, "goaway");
    const closed = once(client, "close");
    expect((await post("a", client)).status).toBe(200);
    const [code, , data] = await goaway;
    expect([code, String(data)]).toEqual([0, '{"reason":"Shutdown"}']);
    await closed;
    expect(messages()).toBe(1);
  });

  it("GOAWAY ends the connection, with another code", async () => {
    fake.play({ fault: "goaway", code: 2, reason: "InternalServerError" });
    const client = session(fake.origin);
    const goaway = once(client, "goaway");
    await expect(post("a", client)).rejects.toThrow();
    const [code, , data] = await goaway;
    expect([code, String(data)]).toEqual([2, '{"reason":"InternalServerError"}']);
    expect(messages()).toBe(0);
  });

  it("connections are refused, and accepted again on the same port", async () => {
    const client = session(fake.origin);
    expect((await post("a", client)).status).toBe(200);
    const cut = once(client, "close");
    const playing = fake.play({ fault: "refuse-connections" });
    await cut;
    await expect(fetch(fake.origin)).rejects.toMatchObject({ cause: { code: "ECONNREFUSED" } });
    playing.stop();
    await waitFor(async () => expect(await statuses(["a"])).toEqual([200]));
  });

  it("connections are refused for a while", async () => {
    fake.play({ fault: "refuse-connections", seconds: 0.3 });
    await expect(fetch(fake.origin)).rejects.toMatchObject({ cause: { code: "ECONNREFUSED" } });
    await waitFor(async () => expect(await statuses(["a"])).toEqual([200]));
  });
});

describe("what is no scenario", () => {
  it.each<[string, object]>([
    ["nothing to play", {}],
    ["an unknown member", { answer: "INTERNAL", percent: 5 }],
    ["a response that the provider does not have", { answer: "BadDeviceToken" }],
    ["an unknown fault", { fault: "explode" }],
    ["an answer and a fault", { answer: "INTERNAL", fault: "reset" }],
    ["a share above 1", { answer: "INTERNAL", share: 30 }],
    ["no times", { answer: "INTERNAL", times: 0 }],
    ["a time that is none", { answer: "INTERNAL", until: "soon" }],
    ["an expression that is none", { answer: "INTERNAL", tokenPattern: "(" }],
    ["a choice of whose connections are refused", { fault: "refuse-connections", times: 3 }],
  ])("%s", (_, scenario) => {
    expect(() => fake.play(scenario as Scenario<never>)).toThrow(TypeError);
    expect(fake.playing()).toEqual([]);
  });
});
