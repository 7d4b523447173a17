import { request } from "node:http";
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import {
  type ProviderFakes,
  startProviderFakes,
} from "../../../src/development/provider-fakes/provider-fakes.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { accessToken, fcmMessage } from "./clients.ts";

let fakes: ProviderFakes;

const cleanup = suiteCleanup();
beforeAll(async () => {
  fakes = await startProviderFakes();
  cleanup.defer(() => fakes.close());
});
afterEach(() => {
  for (const fake of [fakes.fcm, fakes.apns, fakes.webpush]) fake.clear();
});

async function call(method: string, path: string, body?: unknown) {
  const init = body === undefined ? { method } : { method, body: JSON.stringify(body) };
  const response = await fetch(`${fakes.control.origin}${path}`, init);
  const text = await response.text();
  const isJson = response.headers.get("content-type") === "application/json";
  return { status: response.status, text, json: isJson ? JSON.parse(text) : undefined };
}

function record(...tokens: string[]): void {
  for (const token of tokens) {
    fakes.fcm.ledger.record({ token, messageId: `m-${token}`, collapseId: "n", payload: { token } });
  }
}

describe("the control port", () => {
  it("shows the ledgers", async () => {
    record("a", "b", "a");
    const all = await call("GET", "/ledger");
    expect(all.json).toMatchObject({
      fcm: { tokens: 2, messages: 3, repeats: 1 },
      apns: { messages: 0 },
      webpush: { messages: 0 },
    });
    expect(Object.keys((await call("GET", "/ledger?provider=fcm")).json)).toEqual(["fcm"]);
    const recent = await call("GET", "/ledger/recent?provider=fcm");
    expect(recent.json.fcm.map(({ token }: { token: string }) => token)).toEqual(["a", "b", "a"]);
  });

  it("shows repeats, a line each", async () => {
    record("a", "b", "a");
    const [line = "", ...more] = (await call("GET", "/ledger/repeats?provider=fcm")).text
      .trimEnd()
      .split("\n");
    const before = { answeredAt: null, endedAt: null, isPending: false };
    expect(JSON.parse(line)).toMatchObject({ token: "a", messageId: "m-a", collapseId: "n", before });
    expect(more).toEqual([]);
    expect((await call("GET", "/ledger/repeats")).status).toBe(400);
  });

  it("shows tokens in pages, a line each", async () => {
    record("a", "b", "c");
    const lines = (text: string) =>
      text
        .trimEnd()
        .split("\n")
        .map((line) => JSON.parse(line));
    const first = await call("GET", "/ledger/tokens?provider=fcm&limit=2");
    expect(lines(first.text).map(({ token }) => token)).toEqual(["a", "b"]);
    const second = await call("GET", "/ledger/tokens?provider=fcm&limit=2&after=b");
    expect(lines(second.text)).toEqual([
      {
        token: "c",
        count: 1,
        messages: [
          {
            messageId: "m-c",
            collapseId: "n",
            count: 1,
            firstAt: expect.any(Number),
            lastAt: expect.any(Number),
          },
        ],
      },
    ]);
    expect((await call("GET", "/ledger/tokens?provider=fcm&after=c")).text).toBe("");
  });

  it("clears ledgers", async () => {
    record("a");
    expect((await call("DELETE", "/ledger")).status).toBe(204);
    expect(fakes.fcm.ledger.summary().messages).toBe(0);
  });

  it("plays scenarios, shows and ends them", async () => {
    const post = async () => {
      const authorization = `Bearer ${await accessToken(fakes.fcm.credentials)}`;
      const path = `/v1/projects/${fakes.fcm.credentials.project_id}/messages:send`;
      const body = JSON.stringify({ message: fcmMessage("a") });
      return (await fetch(`${fakes.fcm.origin}${path}`, { method: "POST", headers: { authorization }, body }))
        .status;
    };
    const played = await call("POST", "/play?provider=fcm", { answer: "UNREGISTERED" });
    expect(played).toMatchObject({ status: 201, json: { id: expect.any(Number), played: 0 } });
    expect(await post()).toBe(404);
    const playing = await call("GET", "/play");
    expect(playing.json).toEqual({
      fcm: [{ id: played.json.id, scenario: { answer: "UNREGISTERED" }, played: 1 }],
      apns: [],
      webpush: [],
    });
    await call("DELETE", `/play?provider=fcm&id=${played.json.id + 1}`);
    expect(await post()).toBe(404);
    await call("DELETE", `/play?provider=fcm&id=${played.json.id}`);
    expect(await post()).toBe(200);
  });

  it.each<[string, string, string, unknown, string]>([
    ["without a provider", "POST", "/play", { answer: "INTERNAL" }, "provider"],
    ["with an unknown provider", "POST", "/play?provider=sms", { answer: "INTERNAL" }, "provider"],
    ["with another provider's answer", "POST", "/play?provider=apns", { answer: "INTERNAL" }, "Unregistered"],
    ["without a scenario", "POST", "/play?provider=fcm", undefined, "JSON object"],
    ["tokens of all providers", "GET", "/ledger/tokens", undefined, "provider"],
    ["a page of nothing", "GET", "/ledger/tokens?provider=fcm&limit=0", undefined, "limit"],
  ])("says what is wrong: %s", async (_, method, path, body, words) => {
    const response = await call(method, path, body);
    expect(response.status).toBe(400);
    expect(response.json.error).toContain(words);
  });

  it("makes subscriptions and ends them", async () => {
    const made = await call("POST", "/webpush/subscriptions", { name: "laptop" });
    expect(made.status).toBe(201);
    expect(made.json).toEqual(fakes.webpush.subscribe("laptop"));
    expect((await call("DELETE", "/webpush/subscriptions", made.json)).status).toBe(204);
    expect((await call("DELETE", "/webpush/subscriptions", {})).status).toBe(400);
  });

  it("has no other operation, and lists those that it has", async () => {
    const response = await call("GET", "/nothing");
    expect(response.status).toBe(404);
    expect(response.json.error).toContain("POST /play");
  });

  it("refuses requests with another host name", async () => {
    const status = await new Promise((resolve, reject) => {
      request(`${fakes.control.origin}/ledger`, { headers: { host: "evil.example" } }, (response) => {
        response.resume();
        resolve(response.statusCode);
      })
        .on("error", reject)
        .end();
    });
    expect(status).toBe(403);
  });
});
