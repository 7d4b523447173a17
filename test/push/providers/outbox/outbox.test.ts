import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { systemClock } from "../../../../src/platform/base/clock.ts";
import { OutboxProvider } from "../../../../src/push/providers/outbox/outbox.ts";
import { content, kindsOf, recipient } from "../providers-fixture.ts";

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "gatepost-outbox-"));
});
afterEach(() => rm(directory, { recursive: true }));

const linesOf = async (path: string): Promise<unknown[]> =>
  (await readFile(path, "utf8"))
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));

test("what was sent is in the file, in order, when it counts as sent", async () => {
  const path = join(directory, "data", "outbox.ndjson");
  const outbox = new OutboxProvider(path, systemClock);
  const what = content({ imageUrl: undefined });
  const send = outbox.prepare(what);
  const first = recipient("first");
  expect(await send(first)).toEqual({ kind: "sent" });
  expect(await linesOf(path)).toEqual([
    {
      time: expect.stringMatching(/^\d{4}-.*Z$/),
      token: "first",
      messageId: first.messageId,
      notificationId: what.notificationId,
      title: what.title,
      message: what.message,
      imageUrl: null,
    },
  ]);
  const others = Array.from({ length: 500 }, (_, index) => recipient(`token-${index}`));
  const waves = [others.slice(0, 250), others.slice(250)].map(async (wave, index) => {
    if (index > 0) await new Promise(setImmediate);
    return Promise.all(wave.map(send));
  });
  const outcomes = (await Promise.all(waves)).flat();
  expect(kindsOf(outcomes)).toEqual({ sent: 500 });
  const tokens = (await linesOf(path)).map((line) => Object(line)["token"]);
  expect(tokens).toEqual(["first", ...others.map(({ token }) => token)]);
  await outbox.close();
});

test("a file that cannot be written is an outcome", async () => {
  const outbox = new OutboxProvider("/dev/null/outbox.ndjson", systemClock);
  const outcome = await outbox.prepare(content())(recipient("token"));
  expect(outcome).toEqual({ kind: "unavailable", reason: expect.stringMatching(/^E[A-Z]+$/) });
  await outbox.close();
});
