/** Where events are written: whatever the level of the log, and without anybody waiting for who reads it. */
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { authApi } from "../support/auth-api.ts";
import { eventsIn } from "../support/auth-fleet.ts";
import { spawnAuthServer, startAuthServer } from "../support/auth-server.ts";
import { killAll, startNode } from "../support/program.ts";
import type { Environment } from "../support/servers.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";
import { waitFor } from "../support/wait-for.ts";

const cleanup = suiteCleanup();

async function start(env: Environment) {
  const server = await startAuthServer("PGlite", { env });
  cleanup.defer(() => server.stop());
  return { server, api: authApi(server.base) };
}

/** The number of different events that grant an authorization: after a failed delivery an event comes again. */
function grantedIn(log: string): number {
  const granted = eventsIn(log).filter(({ type }) => type === "auth.authorization.granted.v1");
  return new Set(granted.map(({ id }) => id)).size;
}

test("while nobody reads standard output, tokens are issued and the process lives; then every event comes", async () => {
  const server = await spawnAuthServer("PGlite");
  cleanup.defer(() => server.stop());
  const api = authApi(server.base);
  const { id } = await api.newIdentity();
  // The pipe takes 64 KiB, and this end of it a little more: far less than follows.
  server.child.stdout?.pause();
  const tokens = 1_500;
  for (let issued = 0; issued < tokens; issued += 50) {
    await Promise.all(Array.from({ length: 50 }, () => api.newPair(id)));
  }
  expect((await fetch(`${server.management}/health/live`)).status).toBe(200);
  expect(grantedIn(server.logs())).toBeLessThan(tokens);
  server.child.stdout?.resume();
  await waitFor(() => expect(grantedIn(server.logs())).toBe(tokens));
});

test("a file of its own takes the events, and standard output has none", async () => {
  const directory = await mkdtemp(join(tmpdir(), "gatepost-events-"));
  cleanup.defer(() => rm(directory, { recursive: true }));
  const path = join(directory, "made/at/start/events.jsonl");
  const { server, api } = await start({ LOGGING_LEVEL: "error", EVENT_LOG: path });
  const { id } = await api.newIdentity();
  await api.newPair(id);
  await waitFor(() =>
    expect(eventsIn(readFileSync(path, "utf8")).map(({ type }) => type)).toEqual([
      "auth.identity.created.v1",
      "auth.authorization.granted.v1",
    ]),
  );
  expect(eventsIn(server.logs())).toEqual([]);
});

test("a FIFO in its place is refused at the start, with the name of the setting", async () => {
  const directory = await mkdtemp(join(tmpdir(), "gatepost-events-"));
  cleanup.defer(() => rm(directory, { recursive: true }));
  cleanup.defer(killAll);
  const fifo = join(directory, "fifo");
  execFileSync("mkfifo", [fifo]);
  const ports = { SERVER_PORT: "0", GRPC_PORT: "0", MANAGEMENT_PORT: "0" };
  const program = startNode("src/main.ts", { ...ports, DATA_DIR: directory, EVENT_LOG: fifo });
  expect(await program.ended()).toBe(78);
  expect(program.stderr()).toContain(`EVENT_LOG cannot be written to: ${fifo} is no regular file.`);
});

test("the level of the log leaves the events in it", async () => {
  const { server, api } = await start({ LOGGING_LEVEL: "error" });
  await api.newPair((await api.newIdentity()).id);
  await waitFor(() => expect(grantedIn(server.logs())).toBe(1));
});
