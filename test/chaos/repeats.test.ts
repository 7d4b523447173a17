/** Which repeats chaos lets pass. */
import { describe, expect, it } from "vitest";
import type { Repeat } from "../../src/development/provider-fakes/ledger.ts";
import type { Provider } from "./fakes.ts";
import { explanation } from "./repeats.ts";
import { type Played, troubles } from "./troubles.ts";

const start = Date.parse("2026-11-23T12:00:00Z");

/** A time in which the trouble with this name was played, in seconds, at one provider or at all. */
function playedAt(name: string, from: number, to: number, provider?: Provider): Played {
  const trouble = troubles.find((one) => one.name.startsWith(name));
  if (!trouble) throw new Error(`there is no trouble ${name}`);
  return {
    trouble,
    startedAt: start + from * 1_000,
    endedAt: start + to * 1_000,
    ...(provider && { provider }),
  };
}

/** A message that came 60 s after the start, was answered so many seconds after that, and lost its connection. */
function repeated(answeredAfter: number | null, endedAfter: number | null, isPending = false): Repeat {
  const at = start + 60_000;
  const after = (seconds: number | null) => (seconds === null ? null : at + seconds * 1_000);
  const before = { at, answeredAt: after(answeredAfter), endedAt: after(endedAfter), isPending };
  return { token: "device-1", messageId: "1", collapseId: "n", at: at + 30_000, before };
}

type Case = [what: string, repeat: Repeat, played: Played[]];

describe("a message that arrived twice", () => {
  const kill = playedAt("kill -9", 61, 66);
  const reset = playedAt("connections reset", 59, 61, "fcm");
  const stop = playedAt("SIGSTOP", 61, 70);
  const cut = playedAt("database", 60, 60);
  const why = (repeat: Repeat, played: readonly Played[], lagMs = 0) =>
    explanation("fcm", repeat, played, () => lagMs);

  it.each<[...Case, name: string]>([
    ["it was not answered", repeated(null, 200), [], "not answered before"],
    ["its process was killed before it stored the answer", repeated(0.1, 1), [kill], "kill -9 and restart"],
    ["its late answer was not stored before the kill", repeated(0.9, 1), [kill], "kill -9 and restart"],
    [
      "its answer was not stored, as the database had ended the connection, before the kill",
      repeated(0.1, 3),
      [playedAt("kill -9", 63, 66), cut],
      "kill -9 and restart",
    ],
    ["the connection broke before the answer was read", repeated(0.1, 0.2), [reset], "connections reset"],
    [
      "its process was stopped for long before it stored the answer",
      repeated(0.1, null),
      [stop],
      "SIGSTOP and SIGCONT",
    ],
    [
      "its process went on and lost its work to another before it stored the answer",
      repeated(0.1, null),
      [playedAt("SIGSTOP", 48, 58)],
      "SIGSTOP and SIGCONT",
    ],
  ])("is explained: %s", (_what, repeat, played, name) => {
    expect(why(repeat, played)).toBe(name);
  });

  it.each<Case>([
    ["nothing happened", repeated(0.1, null), []],
    [
      "its sender still waited for the answer, so two sent it at once",
      repeated(null, null, true),
      [kill, reset, stop],
    ],
    ["a process was killed that had not sent it", repeated(0.1, null), [kill]],
    ["its connection ended later than the process that was killed", repeated(0.1, 5), [kill]],
    ["it was answered long before its process was killed", repeated(0.1, 8), [playedAt("kill -9", 68, 72)]],
    ["it should have been stored by the kill", repeated(0.1, 1.5), [playedAt("kill -9", 61.5, 66)]],
    [
      "it should have been stored by the kill, as the database ended connections only before",
      repeated(0.1, 3),
      [playedAt("kill -9", 63, 66), playedAt("database", 58, 58)],
    ],
    ["its process stopped as it is meant to", repeated(0.1, 1), [playedAt("SIGTERM", 60, 70)]],
    [
      "the answer had been read when the connection broke",
      repeated(0.1, 4),
      [playedAt("connections reset", 63, 65)],
    ],
    [
      "another provider's connections broke",
      repeated(0.1, 0.2),
      [playedAt("connections reset", 59, 61, "apns")],
    ],
    ["another provider sent GOAWAY", repeated(0.1, 0.2), [playedAt("GOAWAY", 59, 61, "webpush")]],
    ["a process was stopped, but not for long", repeated(0.1, null), [playedAt("SIGSTOP", 61, 64)]],
    ["it was stored long before its process was stopped", repeated(0.1, null), [playedAt("SIGSTOP", 62, 70)]],
    [
      "it came while a process stood still, which cannot have sent it",
      repeated(0.1, null),
      [playedAt("SIGSTOP", 57, 70)],
    ],
    ["it came long after a process had stood still", repeated(0.1, null), [playedAt("SIGSTOP", 40, 53)]],
    ["the database's connections ended", repeated(0.1, null), [cut]],
    ["the provider was slow", repeated(0.1, null), [playedAt("answers after", 58, 66, "fcm")]],
  ])("is not: %s", (_what, repeat, played) => {
    expect(why(repeat, played)).toBeUndefined();
  });

  it("is explained where the machine is late: so late is what is noted and stored", () => {
    // The process was killed at 61 s, which the fake noted four seconds later.
    expect(why(repeated(0.1, 5), [kill], 4_000)).toBe("kill -9 and restart");
    expect(why(repeated(0.1, 9), [kill], 4_000)).toBeUndefined();
  });
});
