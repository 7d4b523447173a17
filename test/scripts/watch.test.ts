/** `npm run watch` shows in plain lines how a notification goes out, and says why where it does not. */
import { generateKeyPairSync } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, expect, it } from "vitest";
import { killAll, root, startProgram } from "../support/program.ts";
import { type PushProcess, spawnPushServer } from "../support/push-server.ts";
import { closedPort } from "../support/servers.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";
import { waitFor } from "../support/wait-for.ts";

let server: PushProcess;
const cleanup = suiteCleanup();
beforeAll(async () => {
  cleanup.defer(killAll);
  server = await spawnPushServer("PGlite");
  cleanup.defer(() => server.stop());
});

async function call(
  { base }: PushProcess,
  path: string,
  token: string,
  body: object,
  status = 204,
): Promise<Response> {
  const response = await fetch(`${base}/v1/pushprovider/${path}`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  expect(response.status).toBe(status);
  return response;
}

async function saveDevice(to = server): Promise<void> {
  const device = { token: "a-phone", expiration: "2035-01-01T00:00:00Z" };
  await call(to, "token", await to.userToken(), device);
}

/** Sends to everybody at the offset. @returns the notification's id */
async function send(utcOffset: number, to = server): Promise<string> {
  const body = { title: "t", message: "m", utcOffsets: [utcOffset] };
  const { headers } = await call(to, "push", await to.backofficeToken(), body);
  return headers.get("notification-id") ?? "";
}

const watch = (id: string, env: Record<string, string> = {}) =>
  startProgram([process.execPath, "--import", "./src/installed.js", "scripts/watch.ts", id], {
    GATEPOST_URL: server.origin,
    ...env,
  });

it("follows a send to its end, without a token in development mode", async () => {
  await saveDevice();
  const program = watch(await send(0));
  expect(await program.ended(), program.output()).toBe(0);
  expect(program.stdout()).toMatch(/█{32} 100 % {2}1 of 1 devices, COMPLETED\n/);
  expect(program.stdout()).toContain(
    "COMPLETED: users: 1, devices: 1; 1 sent, 0 failed, 0 dropped, 0 in dead letters.",
  );
});

it("says that a send reaches nobody, and so do its progress and the log", async () => {
  const id = await send(14);
  const program = watch(id, { BACKOFFICE_TOKEN: await server.backofficeToken() });
  expect(await program.ended(), program.output()).toBe(0);
  const notice = "It has reached nobody: no live device was found for it.";
  expect(program.stdout()).toContain(`${notice}\n`);
  const headers = { authorization: `Bearer ${await server.backofficeToken()}` };
  const progress = await fetch(`${server.base}/v1/pushprovider/notifications/${id}`, { headers });
  expect(await progress.json()).toMatchObject({ state: "COMPLETED", recipients: 0, notice });
  await waitFor(() =>
    expect(server.logs()).toMatch(
      new RegExp(`A notification has reached nobody: no live device was found for it .*${id}`),
    ),
  );
});

it("says which provider is tried again, and why, and goes on after a restart of the server", async () => {
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const credentials = {
    ...{ type: "service_account", project_id: "p", client_email: "a@b.example" },
    private_key: privateKey.export({ type: "pkcs8", format: "pem" }),
    token_uri: `http://127.0.0.1:${closedPort}/token`,
  };
  const env = { PUSH_PROVIDERS: "fcm", FCM_CREDENTIALS: JSON.stringify(credentials) };
  const unreachable = await spawnPushServer("PGlite", { env });
  cleanup.defer(() => unreachable.stop());
  await saveDevice(unreachable);
  const id = await send(0, unreachable);
  const program = watch(id, { GATEPOST_URL: unreachable.origin });
  await waitFor(() =>
    expect(program.stdout()).toMatch(
      /^fcm is UNAVAILABLE: .+\. What waits for it is tried again at 20.+Z\.$/m,
    ),
  );
  await waitFor(() =>
    expect(program.stdout()).toContain(
      "Nothing has gone out for 4 s. Devices that wait for another try: fcm 1.\n",
    ),
  );
  await unreachable.kill();
  const away = `${unreachable.origin} does not respond; GATEPOST_URL names another server. Watching goes on when it does.\n`;
  await waitFor(() => expect(program.stdout()).toContain(away));
  const { port } = new URL(unreachable.origin);
  const restarted = await spawnPushServer("PGlite", { env: { ...unreachable.env, SERVER_PORT: port } });
  cleanup.defer(() => restarted.stop());
  await call(restarted, `notifications/${id}/cancel`, await restarted.backofficeToken(), {}, 200);
  expect(await program.ended(), program.output()).toBe(0);
  expect(program.stdout().split(away)).toHaveLength(2);
  expect(program.stdout()).toContain("CANCELLED: users: 1, devices: 1; 0 sent, 0 failed, 1 dropped");
});

it("says what is missing", async () => {
  for (const [program, words] of [
    [watch(""), "npm run watch -- <id>"],
    [watch("00000000-0000-7000-8000-000000000000"), "NotFound: "],
    [watch("00000000-0000-7000-8000-000000000000", { BACKOFFICE_TOKEN: "x" }), "Unauthenticated: "],
  ] as const) {
    expect(await program.ended()).toBe(1);
    expect(program.stderr()).toContain(words);
  }
});

it("the first screen names LOGGING_LEVEL=debug", () => {
  expect(server.logs()).toContain("LOGGING_LEVEL=debug logs each request.");
  expect(readFileSync(join(root, "docs/getting-started.md"), "utf8")).toContain("LOGGING_LEVEL=debug logs");
});
