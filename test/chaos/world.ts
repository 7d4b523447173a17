/** A deployment that is disturbed: PostgreSQL, NATS, the fakes, an auth process and four push processes of its own. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import postgres from "postgres";
import { authMigrations } from "../../src/auth/service.ts";
import { openDatabase } from "../../src/platform/database/open.ts";
import { pushMigrations } from "../../src/push/database.ts";
import { spawnAuthServer } from "../support/auth-server.ts";
import { createTestDatabase, postgresSettings } from "../support/backends.ts";
import { startNats } from "../support/nats.ts";
import { findPostgresql, installPostgresql } from "../support/postgresql/binaries.ts";
import { startCluster } from "../support/postgresql/cluster.ts";
import { addressOf, type PushAddress, type PushProcess, spawnPushServer } from "../support/push-server.ts";
import { databaseEnvironment } from "../support/servers.ts";
import { prepareAudience } from "./audience.ts";
import { type Fakes, startFakes } from "./fakes.ts";

/** A push process, or the place of one that was killed. */
export interface Member {
  readonly name: string;
  process: PushProcess;
  /** What those before it logged. */
  formerLogs: string;
  /** Whether a balancer would send it requests. */
  isUp: boolean;
  /** Whether a trouble has it at the moment. */
  isTaken: boolean;
  /** Starts it again after its end. */
  restart(): Promise<void>;
}

/** Messages a second to each provider, over all processes. */
export const maxPerSecond = 500;

export interface World {
  readonly fakes: Fakes;
  readonly members: readonly Member[];
  /** A superuser's way into the database. */
  readonly admin: postgres.Sql;
  /** What issues tokens, and deletes identities. */
  readonly auth: Pick<PushAddress, "userToken" | "backofficeToken" | "deleteIdentity">;
  close(): Promise<void>;
}

const settings = ["fsync=off", "full_page_writes=off", "max_connections=200", "shared_buffers=128MB"];
const processes = 4;

/** @param size its devices, and the users that they belong to */
export async function createWorld(size: {
  readonly devices: number;
  readonly users: number;
}): Promise<World> {
  const programs = findPostgresql(["initdb", "postgres"]);
  if (programs === undefined) throw new Error(`Chaos needs PostgreSQL. ${installPostgresql}`);
  await using cleanup = new AsyncDisposableStack();
  const cluster = await startCluster(programs, settings);
  cleanup.defer(() => cluster.stop());
  const database = await createTestDatabase({ admin: new URL(cluster.url) });
  for (const migrations of [authMigrations, pushMigrations]) {
    const opened = await openDatabase(postgresSettings(database), migrations);
    await opened.migrate();
    await opened.close();
  }
  const url = new URL(cluster.url);
  url.pathname = `/${database.name}`;
  const admin = postgres(url.href, {
    max: 3,
    onnotice: () => undefined,
    connection: { application_name: "chaos" },
  });
  cleanup.defer(() => admin.end({ timeout: 1 }));
  const directory = mkdtempSync(join(tmpdir(), "gatepost-chaos-"));
  cleanup.defer(async () => rmSync(directory, { recursive: true, force: true }));
  const fakes = await startFakes(join(directory, "fakes"));
  cleanup.defer(() => fakes.stop());
  await prepareAudience(admin, fakes, size);
  const nats = await startNats();
  cleanup.defer(() => nats.stop());

  const env = {
    ...databaseEnvironment(database),
    BROKER_URL: nats.url,
    DATA_DIR: directory,
    // The ports are read from the log.
    LOGGING_LEVEL: "info",
  };
  const auth = await spawnAuthServer("PostgreSQL", { env });
  cleanup.defer(() => auth.stop());
  const pushEnv = {
    ...env,
    ...fakes.env,
    SERVICES: "push",
    IDENTITY_PROVIDER_ISSUER_URI: auth.settings.issuer,
    PLATFORM_SECURITY_URL: `http://${auth.grpc}`,
    // Less than the fakes take on two cores: what they record late would look as if it had been sent late.
    PUSH_MAX_PER_SECOND: String(maxPerSecond),
    PUSH_MAX_SAVES_PER_MINUTE: "1000",
  };
  const start = () => spawnPushServer("PostgreSQL", { env: pushEnv });
  const members = await Promise.all(
    Array.from({ length: processes }, async (_, index): Promise<Member> => {
      const member: Member = {
        name: `push-${index + 1}`,
        process: await start(),
        formerLogs: "",
        isUp: true,
        isTaken: false,
        async restart() {
          member.formerLogs += member.process.logs();
          member.process = await start();
          member.isUp = true;
        },
      };
      return member;
    }),
  );
  cleanup.defer(async () => {
    await Promise.all(members.map(({ process }) => process.kill()));
  });
  const all = cleanup.move();
  return {
    fakes,
    members,
    admin,
    auth: addressOf(members[0]?.process.origin ?? "", auth.origin),
    close: () => all.disposeAsync(),
  };
}
