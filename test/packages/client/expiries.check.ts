/** Sessions over many expiries: each loses the response, or is met by two processes at once. */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { beforeAll, expect, test } from "vitest";
import { folderStore } from "../../../packages/client/src/node.ts";
import { authApi } from "../../support/auth-api.ts";
import { openDatabaseWire } from "../../support/database-wire.ts";
import { type PushServer, startPushServer } from "../../support/push-server.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { lose, type SessionLab, startSessionLab } from "./sessions.ts";

let server: PushServer;
let lab: SessionLab;
const cleanup = suiteCleanup();
beforeAll(async () => {
  server = await startPushServer("PGlite");
  cleanup.defer(() => server.stop());
  lab = await startSessionLab(server);
  cleanup.defer(() => lab.proxy.close());
});

test("100 responses that are lost after the commit sign nobody out", async () => {
  const { first } = await lab.signedIn();
  let isLost = false;
  lab.onWay("/oauth2/v1/tokens", () => {
    isLost = !isLost;
    if (isLost) lose();
  });
  for (let round = 0; round < 100; round++) {
    first.pass(900);
    await first.session.accessToken();
  }
  expect(lab.refreshes).toEqual(Array(200).fill(200));
  expect(first.endings).toEqual([]);
  lab.onWay("", () => undefined);
});

test("two processes with one folder and no lock: 1,000 expiries sign nobody out", async () => {
  const folder = join(mkdtempSync(join(tmpdir(), "gatepost-session-")), "session");
  cleanup.defer(() => rmSync(join(folder, ".."), { recursive: true, force: true }));
  const api = authApi(server.authBase);
  const first = lab.instance({ store: folderStore(folder) });
  const { id } = await api.newIdentity();
  await first.session.begin(await api.newPair(id));
  const file = join(import.meta.dirname, "refreshing.ts");
  const start = () => {
    const child = fork(file, [`${lab.proxy.origin}/api/auth`, "backend-dev-secret", folder], {
      execArgv: [],
    });
    cleanup.defer(() => void child.kill("SIGKILL"));
    return child;
  };
  const told = async (child: ChildProcess): Promise<unknown> => (await once(child, "message"))[0];
  const children = [start(), start()];
  await Promise.all(children.map(told));
  const seen = new Set<unknown>();
  for (let round = 0; round < 500; round++) {
    const outcomes = Promise.all(children.map(told));
    for (const child of children) child.send("expired");
    for (const outcome of await outcomes) {
      expect(outcome).toEqual({ token: expect.any(String) });
      seen.add(JSON.stringify(outcome));
    }
  }
  expect(seen.size).toBeGreaterThanOrEqual(500);
  const token = await first.session.accessToken();
  expect(seen).toContain(JSON.stringify({ token }));
  expect(await api.introspect(token)).toMatchObject({ active: true });
});

test("a network that breaks, is away, or swallows what is sent signs nobody out", async () => {
  const { port } = new URL(server.origin);
  const wire = await openDatabaseWire("127.0.0.1", Number(port));
  cleanup.defer(() => wire.close());
  const { store } = await lab.signedIn();
  /** What is done while a refresh that has failed waits. */
  const whileWaiting: (() => void | Promise<void>)[] = [];
  const device = lab.instance({
    store,
    platform: {
      fetch: (url, init) =>
        fetch(String(url).replace(lab.proxy.origin, `http://127.0.0.1:${wire.port}`), init),
      async sleep() {
        await whileWaiting.shift()?.();
      },
    },
  });
  const tokens: string[] = [];
  async function renew(): Promise<void> {
    tokens.push(await device.session.accessToken(await device.session.accessToken()));
    expect(whileWaiting, "refreshes that have failed").toEqual([]);
  }
  await renew();

  // Broken while the request is on its way.
  wire.delay(50);
  whileWaiting.push(() => wire.delay(0));
  const breaking = renew();
  await setTimeout(25);
  wire.reset();
  await breaking;

  // Away.
  whileWaiting.push(() => undefined, wire.refuse());
  wire.reset();
  await renew();

  // What is sent on connections of before is lost, and nobody is told: the request takes its ten seconds.
  await renew();
  wire.strand();
  whileWaiting.push(() => undefined);
  await renew();
  expect(new Set(tokens).size).toBe(5);
  expect(device.endings).toEqual([]);
  const [last = ""] = tokens.slice(-1);
  expect(await authApi(server.authBase).introspect(last)).toMatchObject({ active: true });
});
