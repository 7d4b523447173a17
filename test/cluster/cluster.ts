/**
 * All of a deployment on one machine, from the programs that are installed on it: PostgreSQL with a standby that
 * introspection reads from, three servers of NATS, Redis, two processes of each service, and HAProxy before them.
 * Development mode, for its known credentials and its provider that writes a file; all else is as in production.
 */
import { chmodSync, createWriteStream, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import postgres from "postgres";
import { developmentSecrets } from "../../src/development/secrets.ts";
import { createTestDatabase } from "../support/backends.ts";
import { type Haproxy, type Service, startHaproxy } from "../support/haproxy.ts";
import { type Nats, startNatsCluster } from "../support/nats.ts";
import {
  type Cluster as Postgresql,
  startCluster as startPostgresql,
} from "../support/postgresql/cluster.ts";
import { type Redis, startRedis } from "../support/redis.ts";
import {
  databaseEnvironment,
  type Environment,
  type ServerProcess,
  spawnServer,
} from "../support/servers.ts";
import { findPostgresqlForStandbys } from "./programs.ts";

/** A process of a service, or its place while it starts again. */
export interface Member {
  /** Such as `auth 1`. */
  readonly name: string;
  process: ServerProcess;
  /**
   * As a roll-out does it: SIGTERM, a new process, and on when the balancer sends it requests.
   * @param version the folder of the version that it has from then on
   */
  restart(version: string): Promise<void>;
}

export interface Cluster {
  /** The folder that holds everything; removed when this process ends. */
  readonly directory: string;
  readonly primary: Postgresql;
  readonly standby: Postgresql;
  readonly nats: readonly Nats[];
  readonly redis: Redis;
  readonly balancer: Haproxy;
  /** Two of auth, then two of push. */
  readonly members: readonly Member[];
  /** What a program needs to work on the database, `npm run migrate` too. */
  readonly databaseEnvironment: Environment;
  /** Ends all of it. */
  stop(): Promise<void>;
}

const postgresqlSettings = [
  // It is gone with the cluster anyway.
  "fsync=off",
  "max_connections=150",
  "shared_buffers=64MB",
  "restart_after_crash=off",
];

/** From now on what acknowledges a commit of the primary is the standby, which has to be there. */
async function waitForStandby(primary: Postgresql): Promise<void> {
  const sql = postgres(primary.url, { max: 1, onnotice: () => undefined });
  try {
    await sql`alter system set synchronous_standby_names = '*'`;
    await sql`select pg_reload_conf()`;
  } finally {
    await sql.end({ timeout: 1 });
  }
}

/** Makes the folder of a cluster. Temporary files of this process and of what it starts are in it from then on. */
export function makeDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), "gatepost-cluster-"));
  process.once("exit", () => rmSync(directory, { recursive: true, force: true }));
  // Where we are root, PostgreSQL runs as another user, who has to get to its own folder.
  chmodSync(directory, 0o711);
  process.env["TMPDIR"] = directory;
  return directory;
}

/**
 * Starts everything in that folder.
 * @param version the folder of the version that all processes have
 * @throws where a program is missing, or does not start
 */
export async function startCluster(directory: string, version: string): Promise<Cluster> {
  await using cleanup = new AsyncDisposableStack();
  const binaries = findPostgresqlForStandbys();
  if (binaries === undefined) throw new Error("PostgreSQL is not on this machine.");

  const balancer = await startHaproxy();
  cleanup.defer(() => balancer.stop());
  const redis = await startRedis();
  cleanup.defer(() => redis.stop());
  const nats = await startNatsCluster();
  for (const server of nats) cleanup.defer(() => server.stop());
  const primary = await startPostgresql(binaries, postgresqlSettings, "", { mayEnd: true });
  cleanup.defer(() => primary.stop());
  const database = await createTestDatabase({ admin: new URL(primary.url) });
  const standby = await startPostgresql(binaries, postgresqlSettings, primary.url, { mayEnd: true });
  cleanup.defer(() => standby.stop());
  await waitForStandby(primary);

  const dataDir = join(directory, "data");
  const { apiKey } = developmentSecrets(dataDir);
  const ofDatabase: Environment = {
    ...databaseEnvironment(database),
    // Whichever of them is the primary.
    DB_HOST: [primary, standby].map(({ url }) => new URL(url).host).join(),
  };
  const common: Environment = {
    ...ofDatabase,
    ...redis.env,
    BROKER_URL: nats.map(({ url }) => url).join(","),
    BROKER_REPLICAS: String(nats.length),
    DATA_DIR: dataDir,
    // As in production: a balancer needs the time.
    SHUTDOWN_DELAY_SECONDS: "2",
  };
  const issuer = `${balancer.origin}/api/auth`;
  const ofAuth: Environment = { OAUTH_SERVER_ISSUER: issuer, DB_READ_HOSTS: new URL(standby.url).host };
  // The first process of auth has the built-in verifier of one-time codes, which the balancer leads to.
  const ofOtherAuth: Environment = { ...ofAuth, OTP_VERIFIER_URL: `${balancer.origin}/otp-verifier` };
  const ofPush: Environment = {
    IDENTITY_PROVIDER_ISSUER_URI: issuer,
    TOKEN_AUDIENCE: "push",
    PLATFORM_SECURITY_URL: `http://${balancer.grpc}`,
    PLATFORM_SECURITY_API_KEY: apiKey,
  };
  const logs = join(directory, "logs");
  mkdirSync(logs, { mode: 0o700 });

  async function startMember(service: Service, place: number): Promise<Member> {
    const own = service === "push" ? ofPush : place === 1 ? ofAuth : ofOtherAuth;
    const env = { ...common, ...own, SERVICES: service };
    async function start(of: string): Promise<ServerProcess> {
      const server = await spawnServer("PostgreSQL", { env, version: of });
      const log = createWriteStream(join(logs, `${service}-${place}.log`), { flags: "a" });
      log.write(server.logs());
      for (const stream of [server.child.stdout, server.child.stderr]) stream?.pipe(log, { end: false });
      await balancer.add(service, place, server);
      return server;
    }
    const member: Member = {
      name: `${service} ${place}`,
      process: await start(version),
      async restart(to) {
        await member.process.stop();
        await balancer.remove(service, place);
        member.process = await start(to);
      },
    };
    cleanup.defer(async () => {
      // Nobody waits for what is in flight.
      await member.process.kill();
      await member.process.stop();
    });
    return member;
  }

  const members: Member[] = [];
  // The first process of each service makes what the second one finds.
  for (const place of [1, 2])
    for (const service of ["auth", "push"] as const) members.push(await startMember(service, place));
  members.sort((a, b) => a.name.localeCompare(b.name));
  const started = cleanup.move();
  return {
    directory,
    primary,
    standby,
    nats,
    redis,
    balancer,
    members,
    databaseEnvironment: ofDatabase,
    stop: () => started.disposeAsync(),
  };
}
