/** docs/operate/support.md: its own commands and queries, run against a server for users to whom it all has happened. */
import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import postgres from "postgres";
import { beforeAll, describe, expect, test } from "vitest";
import { RevocationReasonSchema } from "../gen/proto/auth/v1/events_pb.ts";
import { RemovalReasonSchema } from "../gen/proto/push/v1/events_pb.ts";
import { startFcmFake } from "../src/development/provider-fakes/fcm/fcm.ts";
import { type Operator, operatorOf } from "./push/end-to-end/operator.ts";
import { fcmSettings } from "./push/end-to-end/world.ts";
import { type AuthApi, authApi, mobileApp, type TokenPair } from "./support/auth-api.ts";
import { postgresUrl, requiredPostgresUrl } from "./support/postgresql/server.ts";
import { root } from "./support/program.ts";
import { type PushServer, startPushServer } from "./support/push-server.ts";
import { suiteCleanup } from "./support/suite-cleanup.ts";
import { waitFor } from "./support/wait-for.ts";

const page = readFileSync(join(root, "docs/operate/support.md"), "utf8");

/** The blocks of a language in the section of a question, in their order. */
function blocksOf(question: string, language: "sh" | "sql"): string[] {
  const [, section = ""] = page.split(`\n## ${question}\n`);
  const [text = ""] = section.split("\n## ");
  return [...text.matchAll(new RegExp(`^\`\`\`${language}\n([\\s\\S]*?)^\`\`\`$`, "gm"))].map(
    ([, block = ""]) => block,
  );
}

test("names each reason of the events", () => {
  const reasons = [RevocationReasonSchema, RemovalReasonSchema].flatMap(({ values }) => values.slice(1));
  expect(reasons.length).toBeGreaterThan(10);
  const named = page.replaceAll("`, `_", "`, `REVOCATION_REASON_");
  expect(reasons.filter(({ name }) => !named.includes(`\`${name}\``)).map(({ name }) => name)).toEqual([]);
});

describe.runIf(postgresUrl())("with a server that has a bad day", () => {
  let server: PushServer;
  let operator: Operator;
  let auth: AuthApi;
  let admin: postgres.Sql;
  let support: postgres.Sql;
  let pair: TokenPair;
  const ids = { user: "", other: "", notification: "", authorization: "", device: "" };
  const directory = mkdtempSync(join(tmpdir(), "gatepost-support-"));
  const cleanup = suiteCleanup();
  cleanup.defer(() => rmSync(directory, { recursive: true, force: true }));

  /** Runs the commands of a question. @returns what they print */
  async function commands(question: string, env: Record<string, string> = {}): Promise<string> {
    const log = join(directory, "log");
    writeFileSync(log, server.logs());
    const script = blocksOf(question, "sh").join("").replaceAll(/^\$ /gm, "");
    expect(script, question).not.toBe("");
    const { stdout } = await promisify(execFile)("sh", ["-c", script], {
      env: {
        PATH: process.env["PATH"] ?? "",
        LOG: log,
        AUTH: server.authBase,
        PUSH: `${server.base}/v1/pushprovider`,
        INTERNAL: "internal:internal-dev-secret",
        API: "api:api-dev-secret",
        BACKOFFICE_TOKEN: operator.as.replace("Bearer ", ""),
        USER_ID: ids.user,
        ID: ids.notification,
        ...env,
      },
    });
    return stdout;
  }

  /** Runs a query of a question as the support's user. */
  async function query(question: string, nth = 0, values: Record<string, string> = {}) {
    const text = blocksOf(question, "sql")[nth] ?? expect.fail(`no query: ${question}`);
    const known: Record<string, string> = { ...ids, ...values };
    return [...(await support.unsafe(text.replaceAll(/:'(\w+)'/g, (_, name) => `'${known[name]}'`)))];
  }

  async function register(user: string, tokens: readonly string[]): Promise<void> {
    const as = `Bearer ${(await auth.newPair(user)).access_token}`;
    for (const token of tokens)
      expect(
        (await operator.call("savePushToken", { as, json: { token, expiration: "2035-01-01T00:00:00Z" } }))
          .status,
      ).toBe(204);
  }

  beforeAll(async () => {
    const fcm = await startFcmFake();
    cleanup.defer(() => fcm.close());
    // So slow that a send can be paused before it has ended.
    const env = { ...fcmSettings(fcm), PUSH_REMOVAL_DELAY_SECONDS: "0", PUSH_MAX_PER_SECOND: "2" };
    server = await startPushServer("PostgreSQL", { env });
    cleanup.defer(() => server.stop());
    const url = requiredPostgresUrl();
    url.pathname = `/${server.env["DB_NAME"]}`;
    admin = postgres(url.href, { max: 1, onnotice: () => undefined });
    cleanup.defer(() => admin.end());
    const role = `gatepost_test_${randomBytes(4).toString("hex")}`;
    const [grants = ""] = blocksOf("Before the first question", "sql");
    await admin.unsafe(
      grants
        .replaceAll("database gatepost ", `database ${server.env["DB_NAME"]} `)
        .replaceAll("gatepost_support", role),
    );
    cleanup.defer(async () => {
      await admin.unsafe(`drop owned by ${role}; drop role ${role}`);
    });
    url.username = role;
    url.password = "a-long-password";
    support = postgres(url.href, { max: 1, onnotice: () => undefined });
    cleanup.defer(() => support.end());

    auth = authApi(server.authBase);
    operator = await operatorOf(server);
    ids.user = (await auth.newIdentity()).id;
    ids.other = (await auth.newIdentity()).id;
    await register(ids.user, ["good", "unregistered-1"]);
    fcm.play({ answer: "THIRD_PARTY_AUTH_ERROR", tokenPrefix: "blocked" });
    await register(ids.user, ["blocked"]);
    await register(ids.other, ["elsewhere"]);
    await admin`update push.devices set utc_offset = 60 where user_id = ${ids.other}`;
    ids.notification = await operator.send({ utcOffsets: [0] });
    await operator.ended(ids.notification);
    await register(ids.user, ["newer"]);
  });

  test("its user may read no secret, and write nothing", async () => {
    for (const statement of [
      "select token from push.devices",
      "select password_hash from auth.identities",
      "select refresh_hash from auth.authorizations",
      "update push.notifications set state = 'CANCELLED'",
    ])
      await expect(support.unsafe(statement)).rejects.toThrow(/permission denied|read-only/);
  });

  test("why a user did not get a push, device by device", async () => {
    const question = "Why did this user not get that push?";
    const rows = await query(question);
    const found = { state: "COMPLETED", was_found: true, recalled_at: null };
    const device = (fields: object) => expect.objectContaining({ ...found, provider: "fcm", ...fields });
    expect(rows).toHaveLength(3);
    expect(rows).toEqual(
      expect.arrayContaining([
        device({ is_newer: false, waits: null }),
        device({ is_newer: false, waits: "DEAD", reason: "401 THIRD_PARTY_AUTH_ERROR" }),
        device({ is_newer: true, waits: null }),
      ]),
    );
    expect(await query(question, 0, { user: ids.other })).toMatchObject([
      { was_found: false, utc_offset: 60 },
    ]);
    expect(await query(question, 0, { user: "nobody" })).toMatchObject([{ was_found: false, device: null }]);
    const named = await operator.call("createNotification", {
      as: operator.as,
      json: { audience: { users: [ids.other] }, content: { texts: { en: { title: "Hi", message: "Hi" } } } },
    });
    expect(named.status).toBe(201);
    const notification = named.headers.get("notification-id") ?? "";
    await operator.ended(notification);
    expect(await query(question, 0, { notification, user: ids.other })).toContainEqual(
      expect.objectContaining({ was_found: true, provider: "fcm" }),
    );
    const shown = await commands(question);
    expect(shown).toContain('"planned":3,"sent":1,"failed":1,"dropped":0,"deadLettered":1,"remaining":0');
    expect(shown).toContain('{"provider":"fcm","reason":"404 UNREGISTERED","devices":1}');
  });

  test("why a user got one twice", async () => {
    expect(await commands("Why did he get it twice?")).toContain(`"id":"${ids.notification}"`);
  });

  test("a device, by its user, its token, and once it is gone", async () => {
    const question = "What is this device's state?";
    await waitFor(async () => expect(await query(question)).toHaveLength(3));
    const [newest] = await query(question);
    expect(newest).toMatchObject({ provider: "fcm", reported_dead: null, provider_paused: null });
    expect(await query(question, 1, { token: "newer" })).toMatchObject([
      { user_id: ids.user, id: newest?.["id"] },
    ]);
    expect(await query(question, 1, { token: "unregistered-1" })).toEqual([]);
    await waitFor(async () => {
      const lines = (await commands(question)).trimEnd().split("\n");
      expect(lines.filter((line) => line.includes("push.token.registered.v1"))).toHaveLength(4);
      expect(lines.filter((line) => line.includes('"reason":"REMOVAL_REASON_DEAD"'))).toHaveLength(1);
    });
  });

  test("how many sends are stuck, and what they wait for", async () => {
    const question = "How many sends are stuck?";
    const held = await operator.send({ utcOffsets: [0] });
    await operator.pause(held);
    const shown = await commands(question);
    const pages = shown.split(/(?<=\})(?=\{"content":)/).map((text) => JSON.parse(text));
    const one = { content: [{ id: held, state: "PAUSED" }], totalElements: 1 };
    const dead = { content: [{ notificationId: ids.notification }], totalElements: 1 };
    const providers = { content: [{ provider: "fcm", state: "OPEN", reason: null }] };
    expect(pages).toMatchObject([one, one, dead, providers]);
    expect(await query(question)).toContainEqual(
      expect.objectContaining({ state: "DEAD", chunks: "1", reason: "401 THIRD_PARTY_AUTH_ERROR" }),
    );
  });

  test("why a user is logged out, and who did it", async () => {
    const question = "Why is he logged out?";
    pair = await auth.newPair(ids.user);
    const open = await query(question);
    expect(open[0]).toMatchObject({ client_id: "backend", ended_at: null, client_disabled_at: null });
    ids.authorization = String(open[0]?.["id"]);
    const { jti = "" } = await auth.introspect(pair.access_token);
    expect(jti.split(".")[0]).toBe(ids.authorization);
    expect(await query(question, 1)).toMatchObject([{ identity_id: ids.user, revoked_at: null }]);
    const headers = { "X-Request-Id": "the-request-of-the-revocation" };
    await auth.call("revokeToken", { as: mobileApp, form: { token: pair.refresh_token }, headers });
    expect(await query(question, 1)).toMatchObject([{ revocation_reason: "CLIENT" }]);
    await waitFor(async () => {
      const shown = await commands(question, { ACCESS_TOKEN: pair.access_token });
      expect(shown).toContain('"reason":"REVOCATION_REASON_CLIENT"');
      expect(shown).toContain('{"active":false}');
    });
    const who = await commands("Who revoked this?");
    for (const said of [ids.authorization, "REVOCATION_REASON_CLIENT", "backend"])
      expect(who).toContain(said);
    expect(who).toContain('"requestId":"the-request-of-the-revocation"');
    // One whole event on each line, with one time.
    for (const line of who.trimEnd().split("\n"))
      expect(JSON.parse(line)).toMatchObject({ type: expect.any(String), time: expect.any(String) });
    expect(who.match(/"time":/g)).toHaveLength(who.trimEnd().split("\n").length);
    const trace = { REQUEST_ID: "the-request-of-the-revocation" };
    expect(await commands("What happened to this request?", trace)).toContain(
      "auth.authorization.revoked.v1",
    );
  });

  test("why a user cannot sign in", async () => {
    const question = "Why can he not sign in?";
    for (let guess = 0; guess < 10; guess += 1)
      await auth.token({ grant_type: "password", username: ids.user, password: "wrong" });
    await waitFor(async () =>
      expect(await commands(question)).toMatch(/auth\.account\.locked\.v1.*ATTEMPT_KIND_PASSWORD/),
    );
    expect(await commands(question)).toContain('"authenticationTypes":["PHONE_OTP"]');
  });

  test("whether anything is left of a user who was deleted", async () => {
    const question = "Is anything left of a user who was deleted?";
    expect(await query(question)).toMatchObject([{ devices: "3", histories: "1" }]);
    await server.deleteIdentity(ids.user);
    await waitFor(async () =>
      expect(await query(question)).toMatchObject([{ devices: "0", histories: "0" }]),
    );
  });
});
