/** The built-in verifier of one process or two on a database, and the messages that it has sent. */
import { randomUUID } from "node:crypto";
import { fromJson } from "@bufbuild/protobuf";
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach } from "vitest";
import { createBuiltInVerifier } from "../../../src/auth/codes/built-in-verifier.ts";
import type { CodeRequest } from "../../../src/auth/codes/code-request.ts";
import type { Codes } from "../../../src/auth/codes/codes.ts";
import type { TextMessage } from "../../../src/auth/codes/text-message.ts";
import { codesSettings, codesTable } from "../../../src/auth/codes-settings.ts";
import { AuthEvents } from "../../../src/auth/events.ts";
import { authMigrations } from "../../../src/auth/service.ts";
import type { OpenDatabase } from "../../../src/platform/database/database.ts";
import { createMetrics } from "../../../src/platform/observability/metrics.ts";
import type { EnvironmentVariables } from "../../../src/platform/settings/environment.ts";
import { resolveSettings, valueOrThrow } from "../../../src/platform/settings/settings.ts";
import { captureLog } from "../../support/captured-log.ts";
import { rows } from "../../support/rows.ts";
import { familiesOf } from "../../support/scrape.ts";
import type { Backend } from "../../support/servers.ts";
import { createMigratedServiceDatabase, type ServiceDatabase } from "../../support/service-database.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";

/** A number of the United States that nobody has, with these last digits. */
export const phoneOf = (index: number) => `+1202555${String(index).padStart(4, "0")}`;

const tables = ["attempts", "challenge_sessions", "sent_codes", "open_breakers", "outbox"];

/** For a suite: its database is empty at the beginning of each test. */
export function codesOn(backend: Backend, env: EnvironmentVariables = {}) {
  const environment = "production";
  const values = valueOrThrow(resolveSettings(codesTable, { ...sending, ...env }, { environment }));
  const settings = codesSettings(values, environment);
  if (!settings) throw new Error("the settings are incomplete");
  const sent: TextMessage[] = [];
  const log = captureLog();
  const metrics = createMetrics("gatepost", "1.2.3");
  let own: ServiceDatabase;
  let database: OpenDatabase;
  let codes: Codes;
  const cleanup = suiteCleanup();

  const verifierOn = ({ db }: OpenDatabase) =>
    createBuiltInVerifier({
      ...{ settings, db, metrics, logger: log.logger, issuer: "https://issuer" },
      sendMessage: async (message) => void sent.push(message),
    });

  beforeAll(async () => {
    own = await createMigratedServiceDatabase(backend, authMigrations);
    cleanup.defer(() => own.drop());
    database = await own.open();
    await database.db.execute(sql`
      insert into auth.clients (client_id, client_name, secret_hashes, authentication_methods, grant_types, scopes,
        client_settings, token_settings, registered_at)
      values ('app', 'app', '{}', '{none}', '{}', '{}', '{}', '{}', now())`);
    codes = verifierOn(database);
    cleanup.defer(() => codes.stop());
  });
  beforeEach(async () => {
    await codes.stop();
    for (const table of tables) await database.db.execute(sql`delete from auth.${sql.identifier(table)}`);
    sent.length = 0;
  });

  const request = (changes: Partial<CodeRequest> = {}): CodeRequest => ({
    ...{ phone: phoneOf(100), clientId: "app", address: "198.51.100.7" },
    ...changes,
  });
  const keyThumbprint = "thumbprint";

  /** Begins a challenge that no limit refuses. */
  async function begin(phone = phoneOf(100), isSent = true) {
    const identity = isSent ? { id: randomUUID(), generation: 0 } : undefined;
    const challenge = {
      phone,
      clientId: "app",
      scopes: undefined,
      codeChallenge: "challenge",
      keyThumbprint,
    };
    const session = await codes.begin({ ...challenge, identity, isSent });
    return { ...session, presented: { authSession: session.authSession, clientId: "app", keyThumbprint } };
  }

  return {
    codes: () => codes,
    /** The verifier of a further process. */
    another: async () => verifierOn(await own.open()),
    db: () => database.db,
    sent,
    log,
    request,
    begin,
    /** As {@link begin}, and the code that was sent. */
    async beginWithCode(phone = phoneOf(100)) {
      const before = sent.length;
      const session = await begin(phone);
      const message = await waitFor(() => sent.slice(before).find((one) => one.phone === phone) ?? fail());
      return { ...session, code: message.code };
    },
    /** Lets so many seconds pass for everything that is stored. */
    async pass(seconds: number) {
      const ago = sql`${seconds}::int * interval '1 second'`;
      await database.db.execute(sql`update auth.attempts set expire = expire - ${ago}`);
      await database.db.execute(sql`update auth.sent_codes set sent_at = sent_at - ${ago}`);
      await database.db.execute(sql`update auth.open_breakers set opened_at = opened_at - ${ago}`);
      await database.db.execute(sql`
        update auth.challenge_sessions
        set otp_expires_at = otp_expires_at - ${ago}, resend_at = resend_at - ${ago}, expires_at = expires_at - ${ago}`);
    },
    /** The types of the events since the test began, each with its data. */
    async events() {
      const found = await rows<{ type: string; data: unknown }>(
        database.db,
        sql`select type, data from auth.outbox order by position`,
      );
      // Refuses what its message does not have.
      for (const { type, data } of found)
        fromJson(kinds.get(type)?.message ?? fail(), JSON.parse(JSON.stringify(data)));
      return found.map(({ type, data }) => [type.replace(/^auth\.codes\.(.*)\.v1$/, "$1"), data]);
    },
    /** What a counter of this process shows. */
    async counted(name: string, labels: Readonly<Record<string, string>>) {
      const family = familiesOf(await metrics.registry.metrics()).find((one) => one.name === name);
      const sample = family?.samples.find((one) =>
        Object.entries(labels).every(([label, value]) => one.labels[label] === value),
      );
      return sample?.value ?? 0;
    },
  };
}

function fail(): never {
  throw new Error("there is no such message");
}

const kinds = new Map(Object.values(AuthEvents).map((kind) => [kind.type, kind]));

const sending = {
  OTP_VERIFIER: "builtin",
  OTP_SENDER: "webhook",
  OTP_REGIONS: "US,DE",
  OTP_WEBHOOK_URL: "https://sms.internal/codes",
  OTP_WEBHOOK_SECRET: `whsec_${Buffer.alloc(32, 7).toString("base64")}`,
};
