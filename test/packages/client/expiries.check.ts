/** Sessions over many expiries: each loses the response, or is met by two processes at once. */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeAll, expect, test } from "vitest";
import { folderStore } from "../../../packages/client/src/node.ts";
import { authApi } from "../../support/auth-api.ts";
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
  for (let round = 0; round < 500; round++) {
    const outcomes = Promise.all(children.map(told));
    for (const child of children) child.send("expired");
    for (const outcome of await outcomes) expect(outcome).toEqual({ token: expect.any(String) });
  }
  expect(first.endings).toEqual([]);
});
