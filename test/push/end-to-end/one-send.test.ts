/** One send, however often its call is repeated: whoever repeats it with the same key gets the same notification. */
import { beforeAll, describe, expect, it } from "vitest";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { type Operator, operatorOf } from "./operator.ts";
import { createWorld, type World } from "./world.ts";

const devices = 500;
const users = 200;

describe.each(backends)("on %s", (backend) => {
  let world: World;
  let operators: readonly [Operator, ...Operator[]];
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    world = await createWorld(backend, { audience: { devices, users } });
    cleanup.defer(() => world.end());
    const server = await world.start();
    const first = await operatorOf(server);
    // An embedded database is one process's own.
    const second = backend === "PGlite" ? [] : [await operatorOf(await world.startBeside(server), first.as)];
    operators = [first, ...second];
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
