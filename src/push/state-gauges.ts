/** Gauges of what waits in the push service, or for an operator. Every process reads the same. */
import { sql } from "drizzle-orm";
import { arrayLiteral, type Executor, plannedEachTime } from "../platform/database/database.ts";
import { boolean, integer, names, number, text } from "../platform/database/sql/readers.ts";
import { computed, prepared, type RowOf, rows, selection } from "../platform/database/sql/statements.ts";
import type { Metrics } from "../platform/observability/metrics.ts";
import { isHeld } from "./notifications/progress.ts";
import type { ProviderName } from "./provider-settings.ts";
import { isWholeProvider } from "./queue/provider-rows.ts";
import { deliveryChunks, notifications, providerStates } from "./schema.ts";

/** Rows of each kind that one reading looks at, so that a scrape costs the same beside any number of them. */
const looked = sql.raw("10000");

const notification = names(notifications);
const n = names(notifications, "n");
const chunk = names(deliveryChunks);
const c = names(deliveryChunks, "c");
const p = names(providerStates, "p");

const stateFields = {
  provider: computed(text, sql`used_provider`),
  deadLetters: computed(integer, sql`coalesce(letters, 0)::int`),
  areRemovalsHeld: computed(boolean, sql`${p.removalsHeldAt} is not null`),
  unfinished: computed(integer, sql`sends::int`),
  held: computed(integer, sql`held_sends::int`),
  oldestSeconds: computed(
    number,
    sql`greatest(coalesce(extract(epoch from clock_timestamp() - oldest_at), 0), 0)::float8`,
  ),
  remaining: computed(number, sql`coalesce(messages, 0)::float8`),
};
const states = selection(stateFields);
type States = readonly RowOf<typeof stateFields>[];

const left = sql`${chunk.planned} - ${chunk.sent} - ${chunk.failed} - ${chunk.dropped} as size`;
const mayBeReplayed = sql`${n.state} <> 'CANCELLED' and ${n.recalledAt} is null and ${n.expiresAt} > now()`;

/** A row for each provider; the last columns are the same in all. SQL text, as every look has its index and its limit. */
const selectStates = prepared(
  ["providers"],
  ({ providers }) => sql`${sql.raw(plannedEachTime)}
    select ${states}
    from unnest(${providers}::text[]) as used (used_provider)
      left join ${providerStates} p on ${isWholeProvider(p, sql`used_provider`)}
      left join (
        select ${c.provider} as dead_provider, count(*) as letters
        from (
          select ${chunk.provider}, ${chunk.notificationId} from ${deliveryChunks}
          where ${chunk.state} = 'DEAD' order by ${chunk.id} desc limit ${looked}
        ) as c join ${notifications} n on ${n.id} = ${c.notificationId}
        where ${mayBeReplayed} group by ${c.provider}
      ) as dead on dead_provider = used_provider
      cross join (
        select count(*) as sends, min(${n.acceptedAt}) as oldest_at
        from (
          select ${notification.acceptedAt} from ${notifications}
          where ${notification.completedAt} is null and ${notification.state} <> 'PAUSED'
          order by ${notification.id} limit ${looked}
        ) as n
      ) as unfinished
      cross join (
        select count(*) as held_sends from (select from ${notifications} n where ${isHeld} limit ${looked}) as held
      ) as held
      cross join (
        select sum(size) as messages
        from (
          (select ${left} from ${deliveryChunks} where ${chunk.state} = 'READY'
            order by ${chunk.provider}, ${chunk.isRetry}, ${chunk.turn}, ${chunk.id} limit ${looked})
          union all (select ${left} from ${deliveryChunks} where ${chunk.state} = 'WAITING'
            order by ${chunk.dueAt} limit ${looked})
          union all (select ${left} from ${deliveryChunks} where ${chunk.processId} is not null limit ${looked})
        ) as untried
      ) as open`,
);

/** @param providers the names of the providers in use */
export function observeStates(
  db: Executor,
  providers: readonly ProviderName[],
  { gauges }: Pick<Metrics, "gauges">,
): void {
  const ofProvider = (value: (one: States[number]) => number) => ({
    labelNames: ["provider"],
    samples: (all: States) => all.map((one) => [{ provider: one.provider }, value(one)] as const),
  });
  const ofAll = (value: (one: States[number]) => number) => ({
    samples: (all: States) => all.slice(0, 1).map((one) => [{}, value(one)] as const),
  });
  gauges(
    [
      {
        name: "gatepost_push_removals_held",
        help: "1 while no dead token of the provider is removed, until an operator decides.",
        ...ofProvider(({ areRemovalsHeld }) => (areRemovalsHeld ? 1 : 0)),
      },
      {
        name: "gatepost_push_dead_letters",
        help: "Dead letters that an operator can replay; of the newest 10,000.",
        ...ofProvider(({ deadLetters }) => deadLetters),
      },
      {
        name: "gatepost_push_notifications_unfinished",
        help: "Notifications that are neither finished nor paused by an operator; of the oldest 10,000.",
        ...ofAll(({ unfinished }) => unfinished),
      },
      {
        name: "gatepost_push_notifications_held",
        help: "Notifications that npm run hold holds, until an operator decides; of 10,000.",
        ...ofAll(({ held }) => held),
      },
      {
        name: "gatepost_push_oldest_unfinished_age_seconds",
        help: "Time since the oldest unfinished one was accepted that is not paused; 0 if there is none.",
        ...ofAll(({ oldestSeconds }) => oldestSeconds),
      },
      {
        name: "gatepost_push_messages_remaining",
        help: "Messages that are planned and still to be sent, without those that a pause has set aside; of 30,000 chunks at most.",
        ...ofAll(({ remaining }) => remaining),
      },
    ],
    () => rows(db, states, selectStates({ providers: arrayLiteral(providers) })),
  );
}
