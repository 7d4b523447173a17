/**
 * The push service beside a deployment of auth, NATS between them, and a count of how often each deletion of an identity
 * has acted there. Triggers give each identity a device as it is created, and write down each device that goes; it comes
 * back at once, so that a deletion which acts twice is seen.
 */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { jetstreamManager } from "@nats-io/jetstream";
import { connect, type NatsConnection } from "@nats-io/transport-node";
import type postgres from "postgres";
import { authEventStream } from "../../src/auth/events.ts";
import { openDatabase } from "../../src/platform/database/open.ts";
import { pushMigrations } from "../../src/push/database.ts";
import { deletionsConsumer } from "../../src/push/events.ts";
import { postgresSettings, type TestDatabase } from "../support/backends.ts";
import type { Nats } from "../support/nats.ts";
import { spawnPushServer } from "../support/push-server.ts";
import { databaseEnvironment } from "../support/servers.ts";
import type { Ledger } from "./ledger.ts";
import type { World } from "./world.ts";

export interface Deletions {
  readonly broker: readonly Nats[];
  /** How often the deletion of each identity has acted; those that never did are not in it. */
  acted(): Promise<ReadonlyMap<string, number>>;
  /** Whether no event waits anywhere. */
  areAllTaken(): Promise<boolean>;
  stop(): Promise<void>;
}

interface Dependencies {
  readonly admin: () => postgres.Sql;
  readonly broker: readonly Nats[];
  readonly database: TestDatabase;
  /** `DB_HOST`, where PostgreSQL is on several hosts. */
  readonly hosts: string | undefined;
  readonly directory: string;
  readonly issuer: string;
}

/** Processes of push, which share the events. */
const processes = 2;
/** Milliseconds for which nobody waits longer, once the load has paused, until all deletions have acted. */
const patienceMs = 40_000;
const lookMs = 100;

/** What the servers need to know of the broker. */
export const brokerEnvironment = (urls: readonly string[]) => ({
  BROKER_URL: urls.join(","),
  BROKER_REPLICAS: String(urls.length),
});

export async function startDeletions(dependencies: Dependencies): Promise<Deletions> {
  const { admin, broker, database, hosts, directory, issuer } = dependencies;
  await using cleanup = new AsyncDisposableStack();
  const opened = await openDatabase(postgresSettings(database), pushMigrations);
  await opened.migrate();
  await opened.close();
  await admin().unsafe(triggers);
  const dataDir = join(directory, "push");
  mkdirSync(dataDir);
  const env = {
    ...databaseEnvironment(database),
    ...(hosts !== undefined && { DB_HOST: hosts }),
    ...brokerEnvironment(broker.map(({ url }) => url)),
    SERVICES: "push",
    DATA_DIR: dataDir,
    // Nobody calls it. Without introspection it removes all that there is when a deletion acts.
    IDENTITY_PROVIDER_ISSUER_URI: issuer,
    PLATFORM_SECURITY_URL: "",
    PLATFORM_SECURITY_API_KEY: "",
    TOKEN_AUDIENCE: "push",
  };
  for (let started = 0; started < processes; started += 1) {
    const one = await spawnPushServer("PostgreSQL", { env });
    cleanup.defer(async () => {
      await one.kill();
      await one.stop();
    });
  }
  const all = cleanup.move();
  return {
    broker,
    async acted() {
      const rows = await admin()<{ id: string; times: number }[]>`
        select user_id as id, count(*)::int as times from public.forgotten group by user_id`;
      return new Map(rows.map(({ id, times }) => [id, times]));
    },
    async areAllTaken() {
      const waiting = await admin()`select from auth.outbox limit 1`;
      if (waiting.length > 0) return false;
      return withBroker(broker, async (connection) => {
        const { consumers } = await jetstreamManager(connection);
        const { num_pending, num_ack_pending } = await consumers.info(
          authEventStream.name,
          deletionsConsumer.name,
        );
        return num_pending + num_ack_pending === 0;
      });
    },
    stop: () => all.disposeAsync(),
  };
}

/** The devices are in nobody's way: no notification is sent. */
const triggers = `
  create table public.forgotten (user_id text not null);
  create function public.register(owner text) returns void language sql security definer as $$
    insert into push.devices
      (user_id, provider, token, token_hash, utc_offset, expires_at, registered_at, renewed_at)
    select owner, 'outbox', id, sha256(id::bytea), 0, now() + interval '1 day', now(), now()
    from (select gen_random_uuid()::text as id) as made
  $$;
  create function public.on_identity() returns trigger language plpgsql security definer as $$
  begin
    perform public.register(new.id);
    return null;
  end $$;
  create function public.on_forgotten() returns trigger language plpgsql security definer as $$
  begin
    insert into public.forgotten values (old.user_id);
    perform public.register(old.user_id);
    return null;
  end $$;
  create trigger on_identity after insert on auth.identities for each row execute function public.on_identity();
  create trigger on_forgotten after delete on push.devices for each row execute function public.on_forgotten();`;

/** Calls `work` with a connection of its own, which is closed afterwards. */
export async function withBroker<T>(
  broker: readonly Nats[],
  work: (connection: NatsConnection) => Promise<T>,
): Promise<T> {
  const connection = await connect({ servers: broker.map(({ url }) => url), ignoreClusterUpdates: true });
  try {
    return await work(connection);
  } finally {
    await connection.close();
  }
}

/** Identities whose deletion was acknowledged so far. */
export const deletedOf = ({ accounts }: Ledger): string[] =>
  [...accounts].flatMap(({ id, ending }) => (ending === "acknowledged" ? [id] : []));

/** While nobody asks for anything: each deletion that was acknowledged must have acted once, and nothing else. */
export async function compareDeletions({ deletions }: World, ledger: Ledger): Promise<void> {
  if (!deletions) return;
  const until = performance.now() + patienceMs;
  while (performance.now() < until && !(await deletions.areAllTaken().catch(() => false)))
    await setTimeout(lookMs);
  const acted = await deletions.acted();
  for (const { id, ending } of ledger.accounts) {
    const times = acted.get(id) ?? 0;
    if (ending === "acknowledged" && times === 0) ledger.lost.push("a deletion never acted at push");
    if (times > 1) ledger.wrong.push(`a deletion acted ${times} times at push`);
    if (ending === "none" && times > 0) ledger.wrong.push("push forgot an identity that is there");
  }
}
