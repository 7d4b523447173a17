/** Which repeats chaos lets pass. */
import { describe, expect, it } from "vitest";
import type { Repeat } from "../../src/development/provider-fakes/ledger.ts";
import { explanation } from "./repeats.ts";
import { type Played, troubles } from "./troubles.ts";

const start = Date.parse("2026-11-23T12:00:00Z");

/** A time in which the trouble with this name was played, in seconds. */
function playedAt(name: string, from: number, to: number): Played {
  const trouble = troubles.find((one) => one.name.startsWith(name));
  if (!trouble) throw new Error(`there is no trouble ${name}`);
  return { trouble, startedAt: start + from * 1_000, endedAt: start + to * 1_000 };
}

/** A message that came 60 s after the start, was answered so many seconds after that, and lost its connection. */
function repeated(answeredAfter: number | null, endedAfter: number | null): Repeat {
  const at = start + 60_000;
  const after = (seconds: number | null) => (seconds === null ? null : at + seconds * 1_000);
  const before = { at, answeredAt: after(answeredAfter), endedAt: after(endedAfter) };
  return { token: "device-1", messageId: "1", collapseId: "n", at: at + 30_000, before };
}

describe("a message that arrived twice", () => {
  const kill = playedAt("kill -9", 61, 66);
  const reset = playedAt("connections reset", 59, 61);
  const stop = playedAt("SIGSTOP", 61, 70);

  it.each([
    ["it was not answered", null, 200, [], "not answered before"],
    ["its process was killed before it stored the answer", 0.1, 1, [kill], "kill -9 and restart"],
    ["its late answer was not stored before the kill", 0.9, 1, [kill], "kill -9 and restart"],
    ["the connection broke before the answer was read", 0.1, 0.2, [reset], "connections reset"],
    [
      "its process was stopped for long before it stored the answer",
      0.1,
      null,
      [stop],
      "SIGSTOP and SIGCONT",
    ],
    [
      "its process went on and lost its work to another before it stored the answer",
      0.1,
      null,
      [playedAt("SIGSTOP", 48, 58)],
      "SIGSTOP and SIGCONT",
    ],
  ] as const)("is explained: %s", (_what, answered, ended, played, name) => {
    expect(explanation(repeated(answered, ended), played, () => 0)).toBe(name);
  });

  it("is explained where the machine is late: so late is what is noted and stored", () => {
    // The process was killed at 61 s, which the fake noted four seconds later.
    expect(explanation(repeated(0.1, 5), [kill], () => 4_000)).toBe("kill -9 and restart");
    expect(explanation(repeated(0.1, 9), [kill], () => 4_000)).toBeUndefined();
  });

  it.each([
    ["nothing happened", 0.1, null, []],
    ["a process was killed that had not sent it", 0.1, null, [kill]],
    ["its connection ended later than the process that was killed", 0.1, 5, [kill]],
    ["it was answered long before its process was killed", 0.1, 8, [playedAt("kill -9", 68, 72)]],
    ["its process stopped as it is meant to", 0.1, 1, [playedAt("SIGTERM", 60, 70)]],
    ["the answer had been read when the connection broke", 0.1, 4, [playedAt("connections reset", 63, 65)]],
    ["a process was stopped, but not for long", 0.1, null, [playedAt("SIGSTOP", 61, 64)]],
    [
      "it came while a process stood still, which cannot have sent it",
      0.1,
      null,
      [playedAt("SIGSTOP", 57, 70)],
    ],
    ["the database's connections ended", 0.1, null, [playedAt("database", 60, 60)]],
  ] as const)("is not: %s", (_what, answered, ended, played) => {
    expect(explanation(repeated(answered, ended), played, () => 0)).toBeUndefined();
  });
});
