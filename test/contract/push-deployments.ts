/**
 * Three servers that are told apart by the push service's database: one that is healthy, one that is broken, one
 * that is away. The auth service beside it works in all three, so that each issues the tokens of its callers.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { sql } from "drizzle-orm";
import type { Database } from "../../src/platform/database/database.ts";
import { openDatabase } from "../../src/platform/database/open.ts";
import { pushMigrations } from "../../src/push/database.ts";
import { type ContractCall, contractCall } from "../support/contract-api.ts";
import type { Contract } from "../support/contract-check.ts";
import { copyEmbeddedDatabase } from "../support/embedded-template.ts";
import { insertNotification } from "../support/push-rows.ts";
import { type PushServer, startPushServer } from "../support/push-server.ts";
import type { Deployment } from "./status-cases.ts";

export interface PushDeployments {
  call(deployment: Deployment): ContractCall;
  /** Authorization headers of one of the three. */
  user(deployment: Deployment): string;
  backoffice(deployment: Deployment): string;
  logs(deployment: Deployment): string;
  /** Authorization header of another user of the healthy one. */
  readonly otherUser: string;
  /** Dead letters of the healthy one: one of the two of a notification that may go on, and that of one that was cancelled. */
  readonly deadLetters: { readonly open: string; readonly cancelled: string };
  stop(): Promise<void>;
}

const hour = 3_600_000;

/** Prepares the push database below this directory before a server opens it. */
async function prepare<T>(dataDir: string, change: (db: Database) => Promise<T>): Promise<T> {
  const settings = { kind: "embedded", dataDir: join(dataDir, "database") } as const;
  await copyEmbeddedDatabase(settings.dataDir);
  const database = await openDatabase(settings, pushMigrations);
  try {
    return await change(database.db);
  } finally {
    await database.close();
  }
}

async function insertDeadLetters(db: Database) {
  const chunks = ["DEAD"] as const;
  await insertNotification(db, { acceptedAt: Date.now() + hour, chunks: ["DEAD", "DEAD"] });
  await insertNotification(db, { acceptedAt: Date.now() - hour, state: "CANCELLED", chunks });
  return { open: "1", cancelled: "3" };
}

/** A database that says it is migrated and is not what the program expects. */
async function breakDatabase(db: Database): Promise<void> {
  for (const table of ["devices", "history_users", "notifications", "delivery_chunks", "dead_reports"]) {
    await db.execute(sql.raw(`alter table push.${table} rename to lost_${table}`));
  }
}

/** Tokens of a server whose readiness nobody waits for. */
async function tokensOf(server: PushServer) {
  for (let attempt = 0; ; attempt += 1) {
    try {
      const [user, backoffice] = [await server.userToken("u-1"), await server.backofficeToken()];
      return { user: `Bearer ${user}`, backoffice: `Bearer ${backoffice}` };
    } catch (error) {
      if (attempt === 100) throw error;
      await setTimeout(100);
    }
  }
}

/** @param contract that the responses of all three are held against */
export async function startPushDeployments(contract: Contract): Promise<PushDeployments> {
  await using cleanup = new AsyncDisposableStack();
  function directory(name: Deployment): string {
    const path = mkdtempSync(join(tmpdir(), `gatepost-${name}-`));
    cleanup.defer(() => rmSync(path, { recursive: true, force: true }));
    return path;
  }
  const [healthyData, brokenData] = [directory("healthy"), directory("broken")];
  const deadLetters = await prepare(healthyData, insertDeadLetters);
  await prepare(brokenData, breakDatabase);

  const shared = { TEST_NOTIFICATION_USER_IDS: "u-tester" };
  // Slow enough that what was sent a moment ago is still on its way.
  const slow = { PUSH_MAX_PER_SECOND: "1" };
  // Few enough that whoever has used them up has to wait for some seconds.
  const few = { PUSH_MAX_SAVES_PER_MINUTE: "10" };
  // Nothing listens at port 1. What each request meets of an outage is logged at level debug.
  const away = { PUSH_DB_HOST: "127.0.0.1", PUSH_DB_PORT: "1", LOGGING_LEVEL: "debug" };
  const started = new Map<Deployment, PushServer>();
  async function start(name: Deployment, options: Parameters<typeof startPushServer>[1]): Promise<void> {
    const running = await startPushServer("PGlite", options);
    cleanup.defer(() => running.stop());
    started.set(name, running);
  }
  await start("healthy", { env: { ...shared, ...slow, ...few, DATA_DIR: healthyData } });
  await start("broken", { env: { ...shared, DATA_DIR: brokenData } });
  await start("away", { env: { ...shared, ...away }, waitUntilReady: false });

  const known = new Map<Deployment, { call: ContractCall; user: string; backoffice: string }>();
  for (const [name, server] of started) {
    known.set(name, { call: contractCall(server.origin, contract), ...(await tokensOf(server)) });
  }
  const of = (deployment: Deployment) => {
    const found = known.get(deployment);
    if (!found) throw new Error(`there is no ${deployment} server`);
    return found;
  };
  const otherUser = `Bearer ${await started.get("healthy")?.userToken("u-2")}`;
  const all = cleanup.move();
  return {
    otherUser,
    call: (deployment) => of(deployment).call,
    user: (deployment) => of(deployment).user,
    backoffice: (deployment) => of(deployment).backoffice,
    logs: (deployment) => started.get(deployment)?.logs() ?? "",
    deadLetters,
    stop: () => all.disposeAsync(),
  };
}
