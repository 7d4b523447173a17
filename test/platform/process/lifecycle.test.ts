/** Parts stop in order and within their grace. With a process of the test's own; a real one is in lifecycle-process.test.ts. */
import { setTimeout as elapsed } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { createLifecycle, type ProcessEvents } from "../../../src/platform/process/lifecycle.ts";
import { captureLog } from "../../support/captured-log.ts";

const { logger } = captureLog();

describe("shutdown", () => {
  it("is not ready before anything else, drains, then stops the parts in reverse order", async () => {
    const events: string[] = [];
    const lifecycle = createLifecycle({ logger, graceSeconds: 1, drainDelayMs: 40 });
    for (const name of ["database", "server"]) {
      lifecycle.add({ name, stop: async () => void events.push(`${name} stops`) });
    }
    lifecycle.onDrain(() => events.push(`drain, ready: ${lifecycle.isReady()}`));
    const start = performance.now();
    const stopped = lifecycle.shutdown("test");
    expect(lifecycle.unready()).toEqual([{ name: "process", reason: "draining" }]);
    expect(events).toEqual(["drain, ready: false"]);
    expect(await stopped).toBe(true);
    expect(events).toEqual(["drain, ready: false", "server stops", "database stops"]);
    expect(performance.now() - start).toBeGreaterThan(35);
  });

  it("happens once, however often it is called", async () => {
    const stops: string[] = [];
    const lifecycle = createLifecycle({ logger, graceSeconds: 1 });
    lifecycle.add({ name: "part", stop: () => void stops.push("part") });
    expect(await Promise.all([lifecycle.shutdown("a"), lifecycle.shutdown("b")])).toEqual([true, true]);
    expect(stops).toEqual(["part"]);
  });

  it("continues if a part or a drain callback fails, and logs the failure", async () => {
    const log = captureLog();
    const lifecycle = createLifecycle({ logger: log.logger, graceSeconds: 1 });
    const stops: string[] = [];
    lifecycle.add({ name: "first", stop: () => void stops.push("first") });
    lifecycle.add({ name: "rejects", stop: () => Promise.reject(new Error("no")) });
    lifecycle.add({
      name: "throws",
      stop: () => {
        throw new Error("no");
      },
    });
    lifecycle.onDrain(() => {
      throw new Error("no");
    });
    expect(await lifecycle.shutdown("test")).toBe(false);
    expect(stops).toEqual(["first"]);
    expect(log.lines().map((line) => line["part"] ?? line["msg"])).toEqual([
      ...["Stopping", "A drain callback failed", "throws", "rejects", "Stopped"],
    ]);
  });

  it("leaves a stuck part behind when the grace is over, and still gives the others a moment", async () => {
    const graces: number[] = [];
    const lifecycle = createLifecycle({ logger, graceSeconds: 0.6 });
    lifecycle.add({ name: "late", stop: (graceMs) => void graces.push(graceMs) });
    lifecycle.add({ name: "stuck", stop: (graceMs) => new Promise(() => void graces.push(graceMs)) });
    expect(await lifecycle.shutdown("test")).toBe(false);
    expect(graces[0]).toBeGreaterThan(590);
    expect(graces[1]).toBe(500);
  });

  it("stops a part that is added meanwhile", async () => {
    const stopped: string[] = [];
    const lifecycle = createLifecycle({ logger, graceSeconds: 1 });
    const late = { name: "late", stop: () => void stopped.push("late") };
    lifecycle.add({ name: "early", stop: () => lifecycle.add(late) });
    await lifecycle.shutdown("test");
    expect(stopped).toEqual(["late"]);
  });
});

describe("readiness", () => {
  it("is ready when every registered part is, and has a reason for each that is not", () => {
    const lifecycle = createLifecycle({ logger, graceSeconds: 1 });
    expect(lifecycle.isReady()).toBe(true);
    const database = lifecycle.readiness.register("database");
    const cache = lifecycle.readiness.register("cache");
    expect(lifecycle.unready()).toEqual([
      { name: "database", reason: "starting" },
      { name: "cache", reason: "starting" },
    ]);
    database.ready();
    cache.notReady("does not answer");
    expect(lifecycle.unready()).toEqual([{ name: "cache", reason: "does not answer" }]);
    expect(lifecycle.isReady()).toBe(false);
    cache.ready();
    expect(lifecycle.isReady()).toBe(true);
    expect(() => lifecycle.readiness.register("cache")).toThrow("twice");
  });
});

describe("run, with a process of the test's own", () => {
  function running() {
    const exits: number[] = [];
    let signal: (signal: NodeJS.Signals) => void = () => {};
    let defect: (thrown: unknown, origin: string) => void = () => {};
    const events: ProcessEvents = {
      onSignal: (handle) => {
        signal = handle;
      },
      onDefect: (handle) => {
        defect = handle;
      },
      exit: (code) => void exits.push(code),
    };
    const lifecycle = createLifecycle({ logger, graceSeconds: 5 });
    lifecycle.run(events);
    return {
      lifecycle,
      exits,
      signal: (name: NodeJS.Signals) => signal(name),
      defect: (thrown: unknown) => defect(thrown, "uncaughtException"),
    };
  }

  it("takes two arrivals of one key press for one signal", async () => {
    const { lifecycle, signal, exits } = running();
    lifecycle.add({ name: "slow", stop: () => elapsed(20) });
    signal("SIGINT");
    signal("SIGINT");
    await elapsed(60);
    expect(exits).toEqual([0]);
  });

  it("exits even where the defect cannot be logged", () => {
    const { defect, exits } = running();
    const unloggable = new Proxy(new Error("x"), {
      get: () => {
        throw new Error("no");
      },
    });
    defect(unloggable);
    expect(exits).toEqual([1]);
  });
});
