/** A primary and its workers, as real processes: what happens to a worker is no concern of the clients of the others. */
import { once } from "node:events";
import { Agent, get, request } from "node:http";
import { connect } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { killAll, type Program, startProgram } from "../../support/program.ts";
import { sparePort } from "../../support/spare-port.ts";
import { waitFor } from "../../support/wait-for.ts";

const programFile = "test/support/workers-program.ts";

afterEach(killAll);

/** Starts the program, and waits until so many workers listen. */
async function start(
  env: Record<string, string> = {},
  listening = 2,
): Promise<Program & { readonly port: number }> {
  const port = sparePort();
  const program = startProgram([process.execPath, programFile], { PORT: String(port), ...env });
  await waitFor(() => expect(listened(program)).toHaveLength(listening));
  return { ...program, port };
}

interface Line {
  readonly msg: string;
  readonly level: string;
  readonly worker?: number;
  readonly workerPid?: number;
  readonly exitCode?: number;
  readonly pauseMs?: number;
  readonly signal?: string;
  readonly err?: { readonly code: string };
}

const linesOf = (program: Program): Line[] =>
  program
    .stdout()
    .split("\n")
    .filter((line) => line.endsWith("}"))
    .map((line) => JSON.parse(line));
const saying = (program: Program, msg: string) => linesOf(program).filter((line) => line.msg === msg);
const listened = (program: Program) => saying(program, "A worker listens");
const pidsOf = (program: Program) => listened(program).map(({ workerPid = 0 }) => workerPid);

/** Whether it is one that has not ended. */
function runs(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

/** Asks on a connection of its own. @returns the id of the process that responded, or the code of the error */
function ask(port: number, path = "/", agent: Agent | false = false): Promise<string> {
  return new Promise((resolve) => {
    get({ host: "127.0.0.1", port, path, agent }, (response) => {
      response.setEncoding("utf8").once("data", resolve);
    }).once("error", (error) => resolve("code" in error ? String(error.code) : error.message));
  });
}

describe("workers", () => {
  it("share a port, whose connections are dealt to them in turn", async () => {
    const { port, ...program } = await start();
    const asked = await Promise.all(Array.from({ length: 20 }, () => ask(port)));
    expect(new Set(asked)).toEqual(new Set(pidsOf(program).map(String)));
    expect(saying(program, "ready")).toHaveLength(1);
  });

  it("one that is killed is replaced; of the others no request fails, and of its own none hangs", async () => {
    const { port, ...program } = await start();
    const [killed = 0, other = 0] = pidsOf(program);
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    while ((await ask(port, "/", agent)) !== String(other)) agent.destroy();
    const hanging = Array.from({ length: 6 }, () => ask(port, "/hang"));
    await Promise.all(Array.from({ length: 6 }, () => ask(port)));
    process.kill(killed, "SIGKILL");
    const until = waitFor(() => expect(listened(program)).toHaveLength(3));
    let isBack = false;
    void until.then(() => {
      isBack = true;
    });
    while (!isBack) expect(await ask(port, "/", agent)).toBe(String(other));
    expect(await Promise.race(hanging)).toBe("ECONNRESET");
    const [ended] = saying(program, "A worker has ended, and is started again");
    expect(ended).toMatchObject({ workerPid: killed, exitCode: 137, signal: "SIGKILL", pauseMs: 100 });
    const successor = String(pidsOf(program)[2]);
    await waitFor(async () => expect(await ask(port)).toBe(successor));
    agent.destroy();
  });

  it("one that dies again and again is started after growing pauses", async () => {
    const { port: _, ...program } = await start({ COUNT: "1" }, 1);
    for (let death = 1; death <= 3; death += 1) {
      process.kill(pidsOf(program).at(-1) ?? 0, "SIGKILL");
      await waitFor(() => expect(listened(program)).toHaveLength(death + 1));
    }
    const pauses = saying(program, "A worker has ended, and is started again").map(({ pauseMs }) => pauseMs);
    expect(pauses).toEqual([100, 200, 400]);
  });

  it("one whose process cannot be spawned is started again until it can", async () => {
    const { port: _, ...program } = await start();
    program.child.kill("SIGUSR2");
    process.kill(pidsOf(program)[0] ?? 0, "SIGKILL");
    for (const code of ["ENOENT", "ERR_INVALID_ARG_VALUE"]) {
      await waitFor(() => {
        const ended = saying(program, "A worker has ended, and is started again");
        expect(ended.find(({ err }) => err?.code === code)).toMatchObject({ exitCode: 1 });
      });
      program.child.kill("SIGUSR2");
    }
    await waitFor(() => expect(listened(program)).toHaveLength(3));
    program.child.kill("SIGTERM");
    expect(await program.ended()).toBe(0);
  });

  it.each([
    ["is stopped", (pid: number) => void process.kill(pid, "SIGSTOP")],
    ["is busy for ever", (_pid: number, port: number) => void ask(port, "/block")],
  ])("one that %s is killed when it has been silent, and replaced; no client hangs", async (_, silence) => {
    const { port, ...program } = await start({ COUNT: "1", SILENT_SECONDS: "3" }, 1);
    silence(pidsOf(program)[0] ?? 0, port);
    // The first is on its way to the worker, and waits in vain; the next are dealt to its successor.
    const dealt = connect(port, "127.0.0.1");
    await once(dealt, "connect");
    dealt.write("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let response = "";
    dealt.on("data", (chunk) => {
      response += String(chunk);
    });
    const closed = new Promise((resolve) => dealt.on("error", () => undefined).once("close", resolve));
    await waitFor(() => expect(saying(program, "A worker is silent, and is killed")).not.toEqual([]));
    await closed;
    await waitFor(() => expect(listened(program)).toHaveLength(2));
    expect(await ask(port)).toBe(String(pidsOf(program)[1]));
    expect(response === "" || response.includes("200 OK")).toBe(true);
  });

  it("end with the code of one whose settings are wrong, at once", async () => {
    const program = startProgram([process.execPath, programFile], { PORT: String(sparePort()), DIE: "78" });
    expect(await program.ended()).toBe(78);
    expect(saying(program, "Workers cannot start")).not.toEqual([]);
  });

  it("end with the code of the fifth that dies before one was ready", async () => {
    const program = startProgram([process.execPath, programFile], { PORT: String(sparePort()), DIE: "9" });
    expect(await program.ended()).toBe(9);
    expect(saying(program, "A worker has ended, and is started again")).toHaveLength(4);
  });

  it("do not end for failed starts while one listened", async () => {
    const { port: _, ...program } = await start({ DIE: "9", DIE_FROM: "2" }, 1);
    const codes = () =>
      saying(program, "A worker has ended, and is started again").map(({ exitCode }) => exitCode);
    await waitFor(() => expect(codes().length).toBeGreaterThanOrEqual(5));
    process.kill(pidsOf(program)[0] ?? 0, "SIGKILL");
    expect(await program.ended()).toBe(9);
    expect(codes().slice(codes().indexOf(137))).toEqual([137, 9, 9, 9, 9]);
  });

  it("ignore signals, and stop when the primary does, each after its last response", async () => {
    const { port, ...program } = await start();
    const pids = pidsOf(program);
    const asked = Array.from({ length: 4 }, () => ask(port, "/drain"));
    await Promise.all(Array.from({ length: 4 }, () => ask(port)));
    for (const pid of pids) for (const signal of ["SIGINT", "SIGTERM"]) process.kill(pid, signal);
    expect(await ask(port)).toMatch(/^\d+$/);
    program.child.kill("SIGTERM");
    expect(await program.ended()).toBe(0);
    expect(new Set(await Promise.all(asked))).toEqual(new Set(pids.map(String)));
    expect(saying(program, "told to stop").map(({ signal }) => signal)).toEqual(["SIGTERM", "SIGTERM"]);
    expect(pids.filter(runs)).toEqual([]);
  });

  it("are gone when the primary is, also one that is stopped, and one that it was killed without", async () => {
    const { port: _, ...program } = await start();
    const pids = pidsOf(program);
    program.child.kill("SIGKILL");
    await program.ended();
    await waitFor(() => expect(pids.filter(runs)).toEqual([]));
  });

  it("write whole lines, however long, though nobody reads for a while", async () => {
    const { port, ...program } = await start();
    program.child.stdout?.pause();
    const asked = Promise.all(Array.from({ length: 4 }, () => ask(port, "/write")));
    await new Promise<void>((resolve) => {
      const probe = request({ host: "127.0.0.1", port, agent: false }, (response) =>
        response.resume().once("end", resolve),
      );
      probe.once("error", () => resolve()).end();
    });
    program.child.stdout?.resume();
    await asked;
    const long = () =>
      program
        .stdout()
        .split("\n")
        .filter((line) => line.includes('"long"'));
    await waitFor(() => expect(long()).toHaveLength(2_000));
    for (const line of long()) expect(JSON.parse(line).long).toHaveLength(9_000);
  });
});
