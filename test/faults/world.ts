/**
 * A deployment of the auth service that faults are played on: PostgreSQL of its own, several servers in processes of
 * their own, and before each of them a way to the database that can be broken.
 */
import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import postgres from "postgres";
import { authMigrations } from "../../src/auth/service.ts";
import { type AuthProcess, spawnAuthServer } from "../support/auth-server.ts";
import { createTestDatabase } from "../support/backends.ts";
import { type DatabaseWire, openDatabaseWire } from "../support/database-wire.ts";
import { migrate } from "../support/migrated-database.ts";
import type { Nats } from "../support/nats.ts";
import { findPostgresql, installPostgresql } from "../support/postgresql/binaries.ts";
import { type Cluster, type ClusterPlace, startCluster } from "../support/postgresql/cluster.ts";
import { newSigningKey, productionEnvironment } from "../support/production-environment.ts";
import type { Redis } from "../support/redis.ts";
import { brokerEnvironment, type Deletions, startDeletions } from "./deletions.ts";
import { basic } from "./http-client.ts";
import type { Replicated } from "./replicated.ts";
import { openStandby, type Standby } from "./standbys.ts";

export interface WorldOptions {
  /** Where PostgreSQL has its data; in the folder for temporary files unless given. */
  readonly place?: ClusterPlace;
  /** Starts PostgreSQL on several hosts; on one unless given. */
  readonly replicated?: () => Promise<Replicated>;
  /** Starts the servers of a broker, and push to read the events; none unless given. */
  readonly broker?: () => Promise<readonly Nats[]>;
  /** Starts a cache that the servers share; none unless given. */
  readonly cache?: () => Promise<Redis>;
  /** Whether the servers also read from those hosts of `replicated` that are standbys; they do not unless given. */
  readonly readsReplicas?: boolean;
  /** Whether each server has ways of its own to the broker and the cache, which can be broken; it has none unless given. */
  readonly hasWays?: boolean;
  /** Names of the standbys that the servers read from; none unless given. Commits wait for them once that is asked for. */
  readonly standbys?: readonly string[];
  /** Beside the settings that all servers have: one element for each of them. */
  readonly servers?: readonly Readonly<Record<string, string>>[];
}

/** A server, or the place of one that was killed. */
export interface Member {
  readonly name: string;
  /** Its way to PostgreSQL, where that is on one host. */
  readonly wire: DatabaseWire;
  /** That way, and those to NATS and Redis that it has of its own. */
  readonly ways: readonly DatabaseWire[];
  process: AuthProcess;
  /** Whether a balancer would send it requests: false from its end until it is ready again. */
  isUp: boolean;
  /** Starts it again. @param env settings that differ */
  restart(env?: Readonly<Record<string, string>>): Promise<void>;
}

export interface World {
  /** PostgreSQL on one host. @throws where it is {@link replicated} */
  readonly cluster: Cluster;
  readonly replicated: Replicated | undefined;
  /** What push learns over the broker; undefined where there is none. */
  readonly deletions: Deletions | undefined;
  /** @throws where there is none */
  readonly cache: Redis;
  readonly standbys: readonly Standby[];
  /** A superuser's way into the database, or into that of the present primary, which no fault of the network concerns. */
  readonly admin: postgres.Sql;
  readonly database: string;
  /** The user that the servers connect as. */
  readonly user: string;
  /** The bystander's server is the first. Faults that concern one server alone concern another. */
  readonly members: readonly [Member, Member, ...Member[]];
  /** `Authorization` of the clients, and of who may introspect. */
  readonly credentials: Readonly<Record<ClientName | "internal", string>>;
  /** `OAUTH_SERVER_CLIENTS` with these clients. */
  clientList(...names: readonly ClientName[]): string;
  close(): Promise<void>;
}

const clientNames = ["application", "other", "guesser", "former"] as const;
type ClientName = (typeof clientNames)[number];
const issuer = "http://127.0.0.1:8080/api/auth";

/** The settings of PostgreSQL. */
export const serverSettings = [
  // Nobody cuts the power; crashes of processes lose nothing without it.
  "fsync=off",
  "max_connections=80",
  "shared_buffers=64MB",
];

/** The programs of PostgreSQL that it needs. @throws where this machine has none */
export function postgresqlPrograms(): string {
  const programs = findPostgresql(["initdb", "postgres", "pg_basebackup"]);
  if (programs === undefined) throw new Error(`The faults need PostgreSQL. ${installPostgresql}`);
  return programs;
}

export const addressOf = ({ url }: Cluster) => ({ host: "127.0.0.1", port: Number(new URL(url).port) });

export async function createWorld({
  place = {},
  servers = [{}, {}, {}],
  standbys: standbyNames = [],
  replicated: startReplicated,
  readsReplicas = false,
  hasWays = false,
  broker: startBroker,
  cache: startCache,
}: WorldOptions = {}): Promise<World> {
  await using cleanup = new AsyncDisposableStack();
  const cache = await startCache?.();
  cleanup.defer(async () => cache?.stop());
  const broker = await startBroker?.();
  cleanup.defer(async () => void (await Promise.all((broker ?? []).map((server) => server.stop()))));
  const replicated = await startReplicated?.();
  const cluster = replicated
    ? undefined
    : await startCluster(postgresqlPrograms(), serverSettings, "", place);
  cleanup.defer(async () => (replicated ?? cluster)?.stop());
  const primaryUrl = () => new URL((replicated ?? cluster)?.url ?? "");
  const database = await createTestDatabase({ admin: primaryUrl() });
  await migrate(database, authMigrations);

  const standbys: Standby[] = [];
  for (const name of standbyNames) {
    const standby = await openStandby(postgresqlPrograms(), serverSettings, primaryUrl(), name);
    cleanup.defer(() => standby.stop());
    standbys.push(standby);
  }

  const admins = new Map<string, postgres.Sql>();
  /** The ways in, one for each server that has been the primary. */
  function admin(): postgres.Sql {
    const url = primaryUrl();
    url.pathname = `/${database.name}`;
    const found = admins.get(url.href) ?? postgres(url.href, { max: 3, onnotice: () => undefined });
    admins.set(url.href, found);
    return found;
  }
  cleanup.defer(async () => {
    await Promise.all([...admins.values()].map((sql) => sql.end({ timeout: 1 })));
  });

  const directory = mkdtempSync(join(tmpdir(), "gatepost-faults-"));
  cleanup.defer(async () => rmSync(directory, { recursive: true, force: true }));
  const secrets = Object.fromEntries(
    clientNames.map((name) => [name, randomBytes(24).toString("base64url")]),
  );
  const clientList = (...names: readonly ClientName[]) =>
    JSON.stringify(
      names.map((name) => ({
        clientId: name,
        clientSecret: secrets[name],
        grantTypes: ["auth", "password", "refresh_token"],
        // Longer than a run.
        tokenSettings: { accessTokenSeconds: 14_400 },
      })),
    );
  const environment = {
    ...productionEnvironment({ database, clients: [], issuer, signing: newSigningKey("faults") }),
    OAUTH_SERVER_CLIENTS: clientList(...clientNames),
    OAUTH_SERVER_CLIENTS_REVISION: "1",
    // The ports are read from the log.
    LOGGING_LEVEL: "info",
    DATA_DIR: directory,
  };
  const hosts = replicated?.hosts;
  const deletions = broker && (await startDeletions({ admin, broker, database, hosts, directory, issuer }));
  cleanup.defer(async () => deletions?.stop());

  async function startMember(own: Readonly<Record<string, string>>, index: number): Promise<Member> {
    const ways: DatabaseWire[] = [];
    async function openWay(host: string, port: number): Promise<DatabaseWire> {
      const way = await openDatabaseWire(host, port);
      cleanup.defer(() => way.close());
      ways.push(way);
      return way;
    }
    const wire = await openWay(database.host, database.port);
    async function wayTo(url: string): Promise<string> {
      const own = new URL(url);
      own.port = String((await openWay(own.hostname, Number(own.port))).port);
      return own.href;
    }
    const brokerUrls = (broker ?? []).map(({ url }) => url);
    const ownUrls = hasWays ? await Promise.all(brokerUrls.map(wayTo)) : brokerUrls;
    const ownCache = hasWays && cache && (await openWay(cache.settings.host, cache.settings.port));
    const readHosts = readsReplicas ? replicated?.hosts : standbys.map(({ address }) => address).join(",");
    const name = `server ${index + 1}`;
    const env = {
      ...environment,
      ...(replicated ? { DB_HOST: replicated.hosts } : { DB_PORT: String(wire.port) }),
      ...(readHosts && { DB_READ_HOSTS: readHosts }),
      ...(broker && brokerEnvironment(ownUrls)),
      ...cache?.env,
      ...(ownCache && { CACHE_PORT: String(ownCache.port) }),
      EVENT_LOG: join(directory, `events-${index}.ndjson`),
      ...own,
    };
    const member: Member = {
      name,
      wire,
      ways,
      process: await spawnAuthServer("PostgreSQL", { env }),
      isUp: true,
      async restart(changed = {}) {
        member.isUp = false;
        member.process = await spawnAuthServer("PostgreSQL", { env: { ...env, ...changed } });
        member.isUp = true;
      },
    };
    cleanup.defer(async () => {
      member.process.child.kill("SIGKILL");
      await member.process.stop();
    });
    return member;
  }
  const [first, second, ...others] = await Promise.all(servers.map(startMember));
  if (!first || !second) throw new Error("a deployment has at least two servers");

  const started = cleanup.move();
  return {
    get cluster() {
      if (!cluster) throw new Error("this deployment has PostgreSQL on several hosts");
      return cluster;
    },
    replicated,
    deletions,
    get cache() {
      if (!cache) throw new Error("this deployment has no cache");
      return cache;
    },
    standbys,
    get admin() {
      return admin();
    },
    database: database.name,
    user: database.user,
    members: [first, second, ...others],
    credentials: {
      application: basic("application", secrets["application"] ?? ""),
      other: basic("other", secrets["other"] ?? ""),
      guesser: basic("guesser", secrets["guesser"] ?? ""),
      former: basic("former", secrets["former"] ?? ""),
      internal: basic("internal", environment.INTERNAL_CLIENT_SECRET),
    },
    clientList,
    close: () => started.disposeAsync(),
  };
}
