/** One send, however often its call is repeated: whoever repeats it with the same key gets the same notification. */
import { beforeAll, describe, expect, it } from "vitest";
import { elsewhereOffset } from "../../support/send-audience.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { type Operator, operatorOf } from "./operator.ts";
import { createWorld, type World } from "./world.ts";

const devices = 500;
const users = 200;

describe.each(backends)("on %s", (backend) => {
  let world: World;
  let operators: readonly [Operator, ...Operator[]];
  let origins: readonly string[];
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    world = await createWorld(backend, { audience: { devices, users } });
    cleanup.defer(() => world.end());
    const server = await world.start();
    const first = await operatorOf(server);
    // An embedded database is one process's own.
    const beside = backend === "PGlite" ? [] : [await world.startBeside(server)];
    operators = [first, ...(await Promise.all(beside.map((other) => operatorOf(other, first.as))))];
    origins = [server, ...beside].map(({ origin }) => origin);
  });

  it("50 calls at once with one key, through every process, send one notification", async () => {
    const [first] = operators;
    const key = { "Idempotency-Key": "the-same" };
    const calls = Array.from({ length: 50 }, (_, n) =>
      (operators[n % operators.length] ?? first).send({}, key),
    );
    const ids = new Set(await Promise.all(calls));
    expect(ids.size).toBe(1);
    const [id = ""] = ids;
    expect(await first.ended(id)).toMatchObject({ recipients: users, planned: devices, sent: devices });
    // Also when it has long been sent.
    expect(await first.send({}, key)).toBe(id);
    expect(await first.list()).toMatchObject({ totalElements: 1, content: [{ id }] });
    expect(world.fcm.ledger.summary()).toMatchObject({ tokens: devices, messages: devices });
  });

  it("50 calls at once to anyone with one key, over HTTP and Connect, send one and get the same", async () => {
    const [first] = operators;
    world.fcm.clear();
    const json = {
      audience: { everybody: true, except: [{ utcOffsets: [elsewhereOffset] }] },
      // Its texts are too long for FCM, which is a warning.
      content: { texts: { en: { title: "ß".repeat(200), message: "ß".repeat(2_000) } } },
    };
    const headers = { "Idempotency-Key": "anyone" };
    /** On a busy machine a call may be told to come again; by its key that is the same call. */
    async function taken(call: () => Promise<{ status: number; text: string }>): Promise<object> {
      const { status, text } = await call();
      if (status === 503) return taken(call);
      expect([200, 201], text).toContain(status);
      return JSON.parse(text);
    }
    const overHttp = (n: number) =>
      taken(() => {
        const { call, as } = operators[n % operators.length] ?? first;
        return call("createNotification", { as, json, headers });
      });
    const overConnect = (n: number) =>
      taken(async () => {
        const origin = origins[n % origins.length];
        const response = await fetch(`${origin}/push.v1.NotificationService/CreateNotification`, {
          method: "POST",
          headers: { ...headers, authorization: first.as, "content-type": "application/json" },
          body: JSON.stringify(json),
        });
        return { status: response.status, text: await response.text() };
      });
    const calls = Array.from({ length: 25 }, (_, n) => [overHttp(n), overConnect(n)]).flat();
    const [created = {}, ...others] = await Promise.all(calls);
    const { id, warnings } = Object(created);
    expect(warnings).toMatchObject([{ pointer: "/body/content/texts/en" }]);
    for (const other of others) expect(other).toEqual(created);
    expect(await first.ended(id)).toMatchObject({ recipients: users, planned: devices, sent: devices });
    expect(world.fcm.ledger.summary()).toMatchObject({ tokens: devices, messages: devices });
    // Also when it has long been sent.
    expect(await overHttp(0)).toEqual(created);
  });

  it("the same key with another body is 409 in every process, and sends nothing", async () => {
    const key = { "Idempotency-Key": "another" };
    const [first] = operators;
    const id = await first.send({ utcOffsets: [75] }, key);
    const { totalElements } = await first.list();
    const sentWith = { as: first.as, query: "?idempotencyKey=another" };
    expect((await first.call("listNotifications", sentWith)).body).toMatchObject({
      totalElements: 1,
      content: [{ id }],
    });
    for (const { call, as } of operators) {
      for (const change of [
        { title: "Good evening" },
        { message: "Closed." },
        { image: "a.png" },
        { utcOffsets: [0] },
      ]) {
        const json = {
          title: "Good morning",
          message: "The shop opens at nine.",
          utcOffsets: [75],
          ...change,
        };
        const answer = await call("sendPushNotification", { as, json, headers: key });
        expect([answer.status, Object(answer.body).code]).toEqual([409, "idempotency_key_reused"]);
      }
    }
    expect((await first.list()).totalElements).toBe(totalElements);
    expect(await first.send({ utcOffsets: [75] }, key)).toBe(id);
  });
});
