/**
 * What the tests of whole servers share: one deployment with its data, the FCM fake that its messages go to, and
 * the processes that are started, stopped and killed on it.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type FcmFake, startFcmFake } from "../../../src/development/provider-fakes/fcm/fcm.ts";
import type { Database } from "../../../src/platform/database/database.ts";
import { openDatabase } from "../../../src/platform/database/open.ts";
import { pushMigrations } from "../../../src/push/database.ts";
import { readSettings } from "../../../src/services.ts";
import { copyEmbeddedDatabase } from "../../support/embedded-template.ts";
import { openFront } from "../../support/front.ts";
import { createMigratedDatabase } from "../../support/migrated-database.ts";
import { addressOf, type PushAddress, type PushProcess, spawnPushServer } from "../../support/push-server.ts";
import { type Audience, fillAudience } from "../../support/send-audience.ts";
import { type Backend, databaseEnvironment, type Environment } from "../../support/servers.ts";

export interface World {
  readonly backend: Backend;
  readonly fcm: FcmFake;
  /** Where the deployment is reached, through all restarts of the process with both services. */
  readonly address: PushAddress;
  /** A process with both services. Started again with the environment of a former one, it takes its place. */
  start(env?: Environment): Promise<PushProcess>;
  /** A process with the push service only; the other one is who knows about tokens. */
  startBeside(other: PushProcess): Promise<PushProcess>;
  /** Where its PostgreSQL is. */
  database(): { readonly host: string; readonly port: number };
  /** Looks into the database of the push service; an embedded one while no process has it open. */
  read<T>(work: (db: Database) => Promise<T>): Promise<T>;
  /** Ends whatever was started, and removes the data. */
  end(): Promise<void>;
}

export interface WorldOptions {
  readonly env?: Environment;
  readonly audience?: Audience;
}

/** The settings that point a server at this fake, and make FCM its only provider. */
export function fcmSettings({ origin, credentials }: FcmFake): Environment {
  return { PUSH_PROVIDERS: "fcm", FCM_ENDPOINT: origin, FCM_CREDENTIALS: JSON.stringify(credentials) };
}

/** Makes the data of a deployment, with the devices of the audience. */
export async function createWorld(backend: Backend, options: WorldOptions = {}): Promise<World> {
  await using cleanup = new AsyncDisposableStack();
  const dataDir = mkdtempSync(join(tmpdir(), "gatepost-test-"));
  cleanup.defer(() => rmSync(dataDir, { recursive: true, force: true }));
  const database = backend === "PostgreSQL" ? await createMigratedDatabase() : undefined;
  if (database) cleanup.defer(() => database.drop());
  const fcm = await startFcmFake();
  cleanup.defer(() => fcm.close());
  const env: Environment = {
    DATA_DIR: dataDir,
    ...(database && databaseEnvironment(database)),
    ...fcmSettings(fcm),
    ...options.env,
  };
  const started: PushProcess[] = [];
  // The issuer is the same for every process that is started with both services, one after the other.
  const front = await openFront();
  cleanup.defer(() => front.close());
  cleanup.defer(async () => {
    await Promise.all(started.map(({ kill, child }) => (isRunning(child) ? kill() : undefined)));
  });
  const issuer = `${front.origin}/api/auth`;

  async function read<T>(work: (db: Database) => Promise<T>): Promise<T> {
    const { push } = await readSettings(env);
    if (!push) throw new Error("the push service is not among the services");
    const opened = await openDatabase(push.database, pushMigrations);
    try {
      return await work(opened.db);
    } finally {
      await opened.close();
    }
  }

  async function start(more: Environment = {}): Promise<PushProcess> {
    const server = await spawnPushServer(backend, {
      env: { ...env, OAUTH_SERVER_ISSUER: issuer, ...more },
    });
    started.push(server);
    if (server.settings.auth) front.leadTo(Number(new URL(server.origin).port));
    return server;
  }

  async function prepare(audience: Audience): Promise<void> {
    if (backend === "PGlite") await copyEmbeddedDatabase(join(dataDir, "database"));
    else {
      const { push } = await readSettings(env);
      if (!push) return;
      const opened = await openDatabase(push.database, pushMigrations);
      await opened.migrate();
      await opened.close();
    }
    await read((db) => fillAudience(db, audience));
  }

  if (options.audience) await prepare(options.audience);
  const all = cleanup.move();
  return {
    backend,
    fcm,
    address: addressOf(front.origin),
    start,
    startBeside: (other) =>
      start({
        SERVICES: "push",
        IDENTITY_PROVIDER_ISSUER_URI: issuer,
        PLATFORM_SECURITY_URL: `http://${other.grpc}`,
      }),
    database() {
      if (!database) throw new Error("an embedded database is nowhere");
      return { host: database.host, port: database.port };
    },
    read,
    end: () => all.disposeAsync(),
  };
}

/** Whether the process has not ended, by whatever means. */
export function isRunning(child: PushProcess["child"]): boolean {
  return child.exitCode === null && child.signalCode === null;
}
