/** A process stops in order, within its grace, and always ends. */
import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import type { Readable } from "node:stream";
import { setTimeout as elapsed } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { afterEach, describe, expect, it } from "vitest";
import { createLifecycle, type ProcessEvents } from "../../src/platform/lifecycle.ts";
import { captureLog } from "../support/captured-log.ts";

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

  it("happens once, however often it is asked for", async () => {
    const stops: string[] = [];
    const lifecycle = createLifecycle({ logger, graceSeconds: 1 });
    lifecycle.add({ name: "part", stop: () => void stops.push("part") });
    expect(await Promise.all([lifecycle.shutdown("a"), lifecycle.shutdown("b")])).toEqual([true, true]);
    expect(stops).toEqual(["part"]);
  });

  it("goes on where a part or a drain callback fails, and says so", async () => {
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
      ...["stopping", "a drain callback failed", "throws", "rejects", "stopped"],
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
  it("is when every part that registered says so, with a reason for each that does not", () => {
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

describe("run, in a real process", () => {
  const program = fileURLToPath(new URL("../support/lifecycle-program.ts", import.meta.url));
  const children: ChildProcessByStdio<null, Readable, Readable>[] = [];
  afterEach(() => {
    for (const child of children.splice(0)) child.kill("SIGKILL");
  });

  async function start(...names: string[]) {
    const child = spawn(process.execPath, [program, ...names], { stdio: ["ignore", "pipe", "pipe"] });
    children.push(child);
    let output = "";
    child.stdout.on("data", (chunk) => {
      output += String(chunk);
    });
    const ended = once(child, "close");
    while (!output.includes('"running"')) await once(child.stdout, "data");
    return {
      kill: (signal: NodeJS.Signals) => child.kill(signal),
      async end() {
        const [code] = await ended;
        return { code: Number(code), messages: output.trimEnd().split("\n").map(messageOf), output };
      },
    };
  }

  function messageOf(line: string): unknown {
    const { msg, part } = JSON.parse(line);
    return part === undefined ? msg : `${part}: ${msg}`;
  }

  it.each(["SIGTERM", "SIGINT"] as const)("%s stops the parts in order and exits 0", async (signal) => {
    const child = await start("quick", "slow");
    child.kill(signal);
    expect(await child.end()).toMatchObject({
      code: 0,
      messages: ["running", "stopping", "draining", "slow: part stops", "quick: part stops", "stopped"],
    });
  });

  it.each([
    ["SIGTERM", 143],
    ["SIGINT", 130],
  ] as const)("a second signal, %s, ends it at once with %i", async (signal, code) => {
    const child = await start("stuck");
    child.kill("SIGTERM");
    await elapsed(200);
    const second = performance.now();
    child.kill(signal);
    expect(await child.end()).toMatchObject({ code });
    expect(performance.now() - second).toBeLessThan(500);
  });

  it.each([["stuck"], ["broken"]])(
    "a part that is %s makes it exit 1, after the others have stopped",
    async (part) => {
      const child = await start("quick", part);
      child.kill("SIGTERM");
      const { code, messages } = await child.end();
      expect(code).toBe(1);
      expect(messages).toContain("quick: part stops");
      expect(messages.at(-1)).toBe("stopped");
    },
  );

  it.each([["throw"], ["reject"]])("a defect (%s) is logged as fatal and exits 1", async (defect) => {
    const child = await start("slow", defect);
    const { code, output } = await child.end();
    expect(code).toBe(1);
    expect(output).toMatch(/"level":"fatal".*by nobody in particular.*lifecycle-program\.ts/);
  });
});
