/** Waiting for a beat costs a standby as many looks for many endings as for one. */
import { describe, expect, test } from "vitest";
import { pause } from "../../../../src/platform/base/loop.ts";
import { AwaitedBeats } from "../../../../src/platform/database/standbys/awaited-beats.ts";

/** A server that shows beats when it is let. */
function server(name: string) {
  const state = { name, beat: 0, looks: 0, inProgress: 0, mostInProgress: 0 };
  return state;
}
type Server = ReturnType<typeof server>;

async function look(host: Server) {
  host.looks += 1;
  host.inProgress += 1;
  host.mostInProgress = Math.max(host.mostInProgress, host.inProgress);
  await pause(1);
  host.inProgress -= 1;
  return { server: host.name, beat: host.beat, isStandby: true };
}

describe("a beat that is waited for", () => {
  test("is shown once each of the servers shows it or a later one", async () => {
    const [a, b] = [server("a"), server("b")];
    const beats = new AwaitedBeats([a, b], look);
    let shown = false;
    const waiting = beats.shown(3, ["a", "b"], 60_000).then(() => {
      shown = true;
    });
    a.beat = 3;
    b.beat = 2;
    await pause(50);
    expect(shown).toBe(false);
    b.beat = 4;
    await waiting;
  });

  test("is waited for no longer than a lease may run", async () => {
    const a = server("a");
    await new AwaitedBeats([a], look).shown(1, ["a"], 30);
    const looks = a.looks;
    await pause(50);
    expect(a.looks - looks).toBeLessThanOrEqual(1);
  });

  test("is not looked for where nobody reads from a standby", async () => {
    const a = server("a");
    await new AwaitedBeats([a], look).shown(1, [], 60_000);
    expect(a.looks).toBe(0);
  });

  test("is looked for at once, though another one has been waited for", async () => {
    const a = server("a");
    const beats = new AwaitedBeats([a], look);
    const first = beats.shown(2, ["a"], 60_000);
    a.beat = 1;
    for (let round = 0; round < 20; round += 1) await beats.shown(1, ["a"], 60_000);
    a.beat = 2;
    await first;
  });

  test("is looked for by one look at a time, however many are waited for", async () => {
    const a = server("a");
    const beats = new AwaitedBeats([a], look);
    const waiting = Array.from({ length: 200 }, (_, index) => beats.shown(index + 1, ["a"], 60_000));
    await pause(200);
    expect(a.mostInProgress).toBe(1);
    // One look in each ten milliseconds.
    expect(a.looks).toBeLessThanOrEqual(22);
    a.beat = 200;
    await Promise.all(waiting);
  });

  test("is looked for again after a look that failed", async () => {
    const a = server("a");
    let failures = 3;
    const beats = new AwaitedBeats([a], async (host) => {
      if (failures-- > 0) throw new Error("no connection");
      return look(host);
    });
    a.beat = 1;
    await beats.shown(1, ["a"], 60_000);
    expect(failures).toBeLessThan(0);
  });
});
