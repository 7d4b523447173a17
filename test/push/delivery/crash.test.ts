/** What a process that is killed while it sends leaves behind. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { sql } from "drizzle-orm";
import { describe, expect, it } from "vitest";
import { startFcmFake } from "../../../src/development/provider-fakes/fcm/fcm.ts";
import { openDatabase } from "../../../src/platform/database/open.ts";
import { pushMigrations } from "../../../src/push/database.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { createMigratedServiceDatabase, type ServiceDatabase } from "../../support/service-database.ts";
import { eventually, planOn } from "./delivery-fixture.ts";
import type { WorkerArgument } from "./worker-program.ts";

const program = fileURLToPath(new URL("worker-program.ts", import.meta.url));

async function startProcess(argument: WorkerArgument): Promise<ChildProcess> {
  const child = spawn(process.execPath, [program, JSON.stringify(argument)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  await Promise.race([
    once(child.stdout, "data"),
    once(child, "exit").then(() => Promise.reject(new Error("the worker ended"))),
  ]);
  return child;
}

async function kill(child: ChildProcess): Promise<void> {
  const exited = once(child, "exit");
  child.kill("SIGKILL");
  await exited;
}

/** The tokens whose message has no stored answer. */
async function unanswered(service: ServiceDatabase, notificationId: string): Promise<Set<string>> {
  // Not by service.open(), which keeps it open until the end.
  const database = await openDatabase(service.settings, pushMigrations);
  const left = await rows<{ token: string }>(
    database.db,
    sql`
      select d.token from push.delivery_chunks c join push.devices d on d.id = any(c.device_ids)
      where c.notification_id = ${notificationId}::uuid and c.state <> 'DONE'`,
  );
  await database.close();
  return new Set(left.map(({ token }) => token));
}

describe.each(backends)("delivery by processes on %s", (backend) => {
  it("kill -9 loses no device; it repeats what has no stored answer, with the same ids, and nothing else", {
    timeout: 300_000,
  }, async () => {
    const service = await createMigratedServiceDatabase(backend, pushMigrations);
    const fake = await startFcmFake();
    const { credentials } = fake;
    const children: ChildProcess[] = [];
    try {
      // An embedded database is opened by one process at a time.
      const prepared = await openDatabase(service.settings, pushMigrations);
      const planned = await planOn(prepared.db, { devices: 2000, chunkSize: 400 });
      await prepared.close();

      const argument: WorkerArgument = {
        database: service.settings,
        fcm: {
          endpoint: fake.origin,
          account: {
            projectId: credentials.project_id,
            privateKeyId: credentials.private_key_id,
            privateKey: credentials.private_key,
            clientEmail: credentials.client_email,
            tokenUri: credentials.token_uri,
          },
        },
        maxPerSecond: 500,
      };
      // FCM takes these, and does not say so for a while.
      const late = planned.tokens.slice(40, 45);
      const slow = fake.play({ tokenPattern: late.join("|"), delayMs: 60_000 });
      const first = await startProcess(argument);
      children.push(first);
      // Seconds after the first answers: they have been stored, also where the machine is busy.
      await eventually(() => fake.ledger.summary().messages > 1500);
      await kill(first);
      slow.stop();
      expect(fake.ledger.summary().tokens).toBeLessThan(2000);
      const withoutAnswer = await unanswered(service, planned.notificationId);
      const sends = (token: string) => fake.ledger.token(token)?.count ?? 0;
      const left = [...withoutAnswer].map((token) => ({ token, before: sends(token) }));

      children.push(await startProcess(argument));
      // Also what was taken before and has to be repeated.
      await eventually(() => left.every(({ token, before }) => sends(token) > before));
      const last = children.at(-1);
      if (last) {
        const exited = once(last, "exit");
        last.kill("SIGTERM");
        await exited;
      }
      const summary = fake.ledger.summary();
      expect(summary).toMatchObject({ tokens: 2000, tokensNotifiedTwice: 0 });
      expect(summary.repeats).toBeGreaterThan(late.length);
      expect(summary.messages).toBe(2000 + summary.repeats);
      const isRepeated = (token: string) => sends(token) > 1;
      // Only those whose answer is not stored, and of the first chunks that is not many.
      expect(planned.tokens.filter(isRepeated).filter((token) => !withoutAnswer.has(token))).toEqual([]);
      expect(late.filter((token) => !isRepeated(token))).toEqual([]);
      expect(planned.tokens.slice(0, 400).filter(isRepeated).length).toBeLessThan(200);

      const reopened = await service.open();
      const chunks = await rows<{ state: string; sent: number }>(
        reopened.db,
        sql`
          select state, sent from push.delivery_chunks
          where notification_id = ${planned.notificationId}::uuid order by id`,
      );
      // One whose turn was over, as the machine is busy, is divided.
      expect(new Set(chunks.map(({ state }) => state))).toEqual(new Set(["DONE"]));
      expect(chunks.reduce((sum, { sent }) => sum + sent, 0)).toBe(2000);
    } finally {
      for (const child of children) child.kill("SIGKILL");
      await fake.close();
      await service.drop();
    }
  });
});
