/** Shedding: when requests are refused, and when they are not, with a clock that the test moves. */
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Prioritized, Priority } from "../../../src/platform/base/priority.ts";
import { Admission, type Admitted } from "../../../src/platform/door/admission.ts";
import { captureLog } from "../../support/captured-log.ts";

let now = 0;
beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "setImmediate"] });
  vi.spyOn(performance, "now").mockImplementation(() => now);
});
afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

/** Moves the clock, with the turns of the event loop and the timers that are due. */
function pass(ms: number): void {
  now += ms;
  vi.advanceTimersByTime(ms);
}

/** A request that has been received as a whole. */
const whole = { isComplete: () => true, onComplete() {} };

const asked = (priority: Priority): Prioritized => ({ service: "sample", priority });

function start() {
  const { logger, lines } = captureLog();
  const counted: Record<string, number> = {};
  let inFlight: () => Readonly<Record<string, number>> = () => ({});
  const admission = new Admission({
    logger,
    observer: {
      waited() {},
      inFlight: (count) => {
        inFlight = count;
      },
      shed: (service, priority, count) => {
        const name = `${service} ${priority}`;
        counted[name] = (counted[name] ?? 0) + count;
      },
    },
  });
  return { admission, lines, counted, inFlight: () => inFlight() };
}

/** Admits a request and starts it. @returns undefined if it is refused */
function enter(
  admission: Admission,
  request: Prioritized,
  arrival: Parameters<Admission["enter"]>[1] = whole,
  begin: () => void = () => undefined,
): Admitted | undefined {
  const admitted = admission.enter(request, arrival);
  if (admitted) admission.start(admitted, begin);
  return admitted;
}

function answer(admission: Admission, admitted: Admitted): void {
  admission.respond(admitted);
  admission.leave(admitted);
}

/** A stream of requests: so many arrive in each millisecond, or so many callers ask again when they are answered. */
interface Stream {
  readonly request: Prioritized;
  readonly perMs?: number;
  readonly callers?: number;
}

interface Outcome {
  arrived: number;
  answered: number;
  refused: number;
  readonly waits: number[];
}

/** A server that answers in turn, so many in a millisecond, and each of them after a delay at least. */
interface Served {
  readonly perMs: number;
  readonly delayMs: number;
  readonly queue: {
    request: Prioritized;
    outcome: Outcome;
    admitted: Admitted;
    at: number;
    again: boolean;
  }[];
}

const serving = (perMs: number, delayMs = 0): Served => ({ perMs, delayMs, queue: [] });

/**
 * Plays streams against a server.
 * @returns what became of each stream
 */
function play(admission: Admission, ms: number, server: Served, ...streams: readonly Stream[]): Outcome[] {
  return playWatched(admission, ms, server, () => undefined, ...streams);
}

/** Plays streams against a server, and calls back after each millisecond. */
function playWatched(
  admission: Admission,
  ms: number,
  server: Served,
  watch: () => void,
  ...streams: readonly Stream[]
): Outcome[] {
  const outcomes = streams.map((): Outcome => ({ arrived: 0, answered: 0, refused: 0, waits: [] }));
  const ask = (request: Prioritized, outcome: Outcome, again: boolean) => {
    outcome.arrived += 1;
    const admitted = enter(admission, request);
    if (!admitted) outcome.refused += 1;
    else server.queue.push({ request, outcome, admitted, at: now, again });
  };
  const due = streams.map(() => 0);
  let capacity = 0;
  for (let tick = 0; tick < ms; tick += 1) {
    streams.forEach(({ request, perMs = 0, callers = 0 }, index) => {
      const outcome = outcomes[index];
      if (!outcome) return;
      const wanted = (due[index] ?? 0) + perMs + (tick === 0 ? callers : 0);
      for (let n = 0; n < Math.floor(wanted); n += 1) ask(request, outcome, callers > 0);
      due[index] = wanted % 1;
    });
    capacity = Math.min(capacity, 1) + server.perMs;
    for (; capacity >= 1; capacity -= 1) {
      const first = server.queue[0];
      if (!first || now - first.at < server.delayMs) break;
      server.queue.shift();
      answer(admission, first.admitted);
      first.outcome.answered += 1;
      first.outcome.waits.push(now - first.at);
      if (first.again) ask(first.request, first.outcome, true);
    }
    pass(1);
    watch();
  }
  return outcomes;
}

describe("nothing is refused", () => {
  it.each([16, 64, 256])("of %i callers, however slowly they are answered", (callers) => {
    for (const perMs of [10, 1, 0.05]) {
      const { admission } = start();
      const [outcome] = play(admission, 3_000, serving(perMs), { request: asked("low"), callers });
      expect(outcome?.answered).toBeGreaterThan(100);
      expect(outcome?.refused).toBe(0);
    }
  });

  it("below the capacity, with thousands in flight behind something that is far away", () => {
    const { admission, inFlight } = start();
    const far = serving(100, 80);
    const [outcome] = play(admission, 2_000, far, { request: asked("normal"), perMs: 50 });
    expect(outcome).toMatchObject({ arrived: 100_000, refused: 0 });
    expect(inFlight()["normal"]).toBeGreaterThan(3_900);
  });

  it("of a burst after a pause", () => {
    const { admission } = start();
    play(admission, 1_000, serving(5), { request: asked("normal"), perMs: 2 });
    pass(60_000);
    const [burst] = play(admission, 2, serving(5), { request: asked("normal"), callers: 2_000 });
    expect(burst?.refused).toBe(0);
  });
});

describe("at twice the capacity", () => {
  it("as many are answered as can be, and the queue stays short", () => {
    const { admission, counted, inFlight } = start();
    const [outcome] = play(admission, 10_000, serving(1.5), { request: asked("normal"), perMs: 3 });
    expect(outcome?.answered).toBeGreaterThan(14_900);
    expect(outcome?.refused).toBeGreaterThan(14_000);
    expect(inFlight()["normal"]).toBeLessThanOrEqual(384);
    expect(Math.max(...(outcome?.waits.slice(1_000) ?? []))).toBeLessThan(400);
    expect(counted["sample normal"]).toBe(outcome?.refused);
  });

  it("of a fast server, as many are in flight as it answers in 200 ms, and no more ten seconds after that", () => {
    const { admission, inFlight } = start();
    const fast = serving(20);
    const load = { request: asked("normal"), perMs: 40 };
    // Until it is known that there is a queue, all are admitted.
    play(admission, 3_000, fast, load);
    const counts: number[] = [];
    const count = () => counts.push(inFlight()["normal"] ?? 0);
    const [outcome] = playWatched(admission, 3_000, fast, count, load);
    // The first of the 60,000 responses are to requests of before.
    expect(outcome?.answered).toBeGreaterThan(60_000 - 4_400);
    expect(Math.min(...counts)).toBeGreaterThan(3_600);
    expect(Math.max(...counts)).toBeLessThan(4_400);
    expect(Math.max(...(outcome?.waits ?? []))).toBeLessThan(230);
    play(admission, 16_000, { ...fast, perMs: 1 }, load);
    expect(inFlight()["normal"]).toBeLessThanOrEqual(384);
  });

  it("of what is answered slowly, no more are in flight because much else is answered fast", () => {
    const { admission, inFlight } = start();
    const [fast, slow] = [serving(20), serving(0.2)];
    const counts: number[] = [];
    for (let turn = 0; turn < 500; turn += 1) {
      const [high] = play(admission, 5, fast, { request: asked("high"), perMs: 12 });
      expect(high?.refused).toBe(0);
      play(admission, 5, slow, { request: asked("normal"), perMs: 1 });
      counts.push(inFlight()["normal"] ?? 0);
    }
    expect(Math.max(...counts)).toBeGreaterThan(300);
    expect(Math.max(...counts)).toBeLessThanOrEqual(384);
  });

  it("a server that has to refuse much, and so answers less, goes on to let in as many as before", () => {
    const { admission, inFlight } = start();
    const fast = serving(20);
    play(admission, 2_000, fast, { request: asked("normal"), perMs: 21 });
    play(admission, 6_000, { ...fast, perMs: 2 }, { request: asked("normal"), perMs: 40 });
    expect(inFlight()["normal"]).toBeGreaterThan(2_900);
  });

  it("those whose client has given up are not taken for answered ones", () => {
    const { admission, inFlight } = start();
    const request = asked("normal");
    const server = serving(2);
    play(admission, 2_000, server, { request, perMs: 4 });
    for (let n = 0; n < 3_000; n += 1) {
      const admitted = enter(admission, request);
      if (admitted) admission.leave(admitted);
    }
    for (const { admitted } of server.queue.splice(0)) admission.leave(admitted);
    play(admission, 3_000, server, { request, perMs: 4 });
    expect(inFlight()["normal"]).toBeLessThanOrEqual(400);
  });

  it("a speed is forgotten when the load was gone for a while", () => {
    const { admission, inFlight } = start();
    const fast = serving(20);
    play(admission, 3_000, fast, { request: asked("normal"), perMs: 40 });
    play(admission, 1_000, fast);
    expect(inFlight()["normal"]).toBe(0);
    pass(10_000);
    const counts: number[] = [];
    const count = () => counts.push(inFlight()["normal"] ?? 0);
    playWatched(admission, 3_000, serving(1), count, { request: asked("normal"), perMs: 4 });
    // 300 ms until it is known that there is a queue, and the 384 of before.
    expect(Math.max(...counts)).toBeLessThan(1_200);
    expect(counts.at(-1)).toBeLessThanOrEqual(384);
  });

  it("lower priorities are refused, higher ones are not", () => {
    const { admission } = start();
    // Answers of high priority come from elsewhere.
    const high = () => play(admission, 1, serving(10), { request: asked("high"), perMs: 2 })[0];
    play(admission, 2_000, serving(1), { request: asked("normal"), perMs: 2 });
    for (let n = 0; n < 100; n += 1) expect(high()?.refused).toBe(0);
    const [low] = play(admission, 20, serving(10), { request: asked("low"), perMs: 1 });
    expect(low).toMatchObject({ arrived: 20, refused: 20 });
  });

  it("all but the highest is refused while some of that has to be", () => {
    const { admission } = start();
    const [, normal, low] = play(
      admission,
      5_000,
      serving(10),
      { request: asked("high"), perMs: 20 },
      { request: asked("normal"), perMs: 0.1 },
      { request: asked("low"), perMs: 0.1 },
    );
    for (const outcome of [normal, low]) expect(outcome?.refused).toBeGreaterThan(450);
  });

  it("what is answered at once counts too, where much arrives while the process is busy", () => {
    const { admission } = start();
    const request = asked("low");
    const outcome = { answered: 0, refused: 0 };
    const begin = (admitted: Admitted) => {
      // The process is busy: time passes, but no timer runs.
      now += 2;
      answer(admission, admitted);
      outcome.answered += 1;
    };
    for (let turn = 0; turn < 10; turn += 1) {
      for (let arrived = 0; arrived < 1_000; arrived += 1) {
        const admitted = admission.enter(request, whole);
        if (admitted) admission.start(admitted, () => begin(admitted));
        else outcome.refused += 1;
      }
      // Immediates that are set meanwhile are due a millisecond later.
      vi.advanceTimersByTime(turn === 0 ? 0 : 1);
    }
    expect(outcome.refused).toBeGreaterThan(6_000);
    expect(outcome.answered).toBeGreaterThan(600);
  });

  it("what waits for its start counts, and is late in the second turn in which it has waited for 100 ms", () => {
    const { admission, inFlight } = start();
    const request = asked("high");
    const slow = () => {
      now += 1;
    };
    const burst = Array.from({ length: 1_000 }, () => enter(admission, request, whole, slow));
    expect(burst).not.toContain(undefined);
    expect(inFlight()["high"]).toBe(1_000);
    const isAdmitted: boolean[] = [];
    for (let turn = 0; turn < 4; turn += 1) {
      // 64 are started, each of which takes a millisecond. Immediates that are set meanwhile are due one later.
      vi.advanceTimersByTime(turn === 0 ? 0 : 1);
      isAdmitted.push(enter(admission, request) !== undefined);
    }
    expect(isAdmitted).toEqual([true, false, false, false]);
  });

  it("none is refused while the process starts others in time", () => {
    const { admission } = start();
    const request = asked("high");
    for (let n = 0; n < 1_000; n += 1) enter(admission, request);
    // All are started, in turns of a millisecond, and wait for something else.
    pass(20);
    now += 110;
    expect(enter(admission, request)).toBeDefined();
  });
});

it("starts no request whose client has gone meanwhile", () => {
  const { admission, inFlight } = start();
  const begun: number[] = [];
  const entered = Array.from({ length: 100 }, (_, place) =>
    enter(admission, asked("normal"), whole, () => void begun.push(place)),
  );
  expect(begun).toHaveLength(64);
  for (const admitted of entered.slice(0, 99)) if (admitted) admission.leave(admitted);
  pass(1);
  expect(begun.slice(64)).toEqual([99]);
  expect(inFlight()["normal"]).toBe(1);
});

it("does not count a request until the client has sent all of it", () => {
  const { admission, inFlight } = start();
  const request = asked("high");
  const received: (() => void)[] = [];
  const part = {
    isComplete: () => false,
    onComplete(callback: () => void) {
      received.push(callback);
    },
  };
  const unfinished: (Admitted | undefined)[] = [];
  for (let second = 0; second < 10; second += 1) {
    for (let n = 0; n < 500; n += 1) unfinished.push(enter(admission, request, part));
    pass(1_000);
    const honest = enter(admission, request);
    expect(honest).toBeDefined();
    if (honest) admission.leave(honest);
  }
  expect(unfinished).not.toContain(undefined);
  expect(inFlight()["high"]).toBe(0);
  for (const callback of received.slice(0, 400)) callback();
  expect(inFlight()["high"]).toBe(400);
  for (const admitted of unfinished) if (admitted) admission.leave(admitted);
  pass(1);
  expect(inFlight()["high"]).toBe(0);
});

it("takes unfinished requests out of the window in which they arrived, and of no other", () => {
  const { admission, inFlight } = start();
  const request = asked("normal");
  const server = serving(1);
  const part = { isComplete: () => false, onComplete() {} };
  const unfinished = Array.from({ length: 100 }, () => admission.enter(request, part));
  play(admission, 3_000, server, { request, perMs: 3 });
  for (const admitted of unfinished) if (admitted) admission.start(admitted, () => undefined);
  const counts: number[] = [];
  const count = () => counts.push(inFlight()["normal"] ?? 0);
  playWatched(admission, 1_000, server, count, { request, perMs: 3 });
  // Were the queue taken to be over, all would be admitted for at least 100 ms: 200 more than are answered.
  expect(Math.max(...counts)).toBeLessThan(400);
});

it("ends with the load, and the log has one line for the beginning and one for the end", () => {
  const { admission, lines, counted, inFlight } = start();
  const request = asked("normal");
  const server = serving(1);
  play(admission, 3_000, server, { request, perMs: 2 });
  play(admission, 500, server, { request });
  expect(inFlight()).toEqual({ high: 0, normal: 0, low: 0 });
  const [after] = play(admission, 1_000, server, { request, perMs: 0.9 });
  expect(after?.refused).toBe(0);
  pass(4_000);
  expect(lines()).toEqual([
    expect.objectContaining({ level: "warn", service: "sample", priority: "normal", inFlight: 384 }),
    expect.objectContaining({ level: "warn", refused: counted["sample normal"] }),
  ]);
});

it("has a metric of what can be refused from the start", () => {
  const { admission, counted } = start();
  admission.register([asked("high"), asked("low")]);
  expect(counted).toEqual({ "sample high": 0, "sample low": 0 });
});
