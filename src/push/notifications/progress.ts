/**
 * The progress of notifications, by offset and provider, as of one moment: planned = sent + failed + dropped +
 * deadLettered + remaining.
 */
import { eq, type SQL, sql } from "drizzle-orm";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import {
  boolean,
  integer,
  listOf,
  names,
  nullable,
  oneOf,
  text,
} from "../../platform/database/sql/readers.ts";
import { computed, isoTime, type RowOf, rows, selection } from "../../platform/database/sql/statements.ts";
import { notificationNotFound } from "../errors.ts";
import type { Page, PageRequest } from "../pages.ts";
import { type ProviderName, providerNames } from "../provider-settings.ts";
import { notifications } from "../schema.ts";
import { part, parts, recipientsNow } from "./chunk-sums.ts";
import { type ClientKey, notificationOfKey } from "./idempotency-keys.ts";
import { isNotificationId, type NotificationState, notificationState } from "./lock-notification.ts";

/** The numbers of devices, by their state. */
interface Counts {
  readonly planned: number;
  readonly sent: number;
  /** Devices that the provider refused or reported dead. */
  readonly failed: number;
  /**
   * Devices that were not sent to: they expired, were removed or changed their user, or the notification expired or was
   * cancelled.
   */
  readonly dropped: number;
  /** Devices that were given up; an operator may replay them. */
  readonly deadLettered: number;
  /** Devices that are still to be sent to. */
  readonly remaining: number;
}

/** The counts of one offset and one provider. */
interface ProgressShare extends Counts {
  /** Minutes. */
  readonly utcOffset: number;
  readonly provider: ProviderName;
}

export interface NotificationProgress extends Counts {
  readonly id: string;
  readonly title: string;
  readonly message: string;
  readonly image: string | null;
  /** Whether it is a test run. */
  readonly test: boolean;
  readonly state: NotificationState;
  /** RFC 3339, UTC, milliseconds. */
  readonly acceptedAt: string;
  readonly completedAt: string | null;
  readonly recalledAt: string | null;
  /** Whether so many devices were reported dead that their tokens are no longer removed. */
  readonly removalStopped: boolean;
  /** What an operator should know of it, in a sentence. */
  readonly notice: string | undefined;
  /** The number of users with a history entry. */
  readonly recipients: number;
  readonly breakdown: ProgressShare[];
}

const n = names(notifications, "n");
const notification = names(notifications);

const total = (count: SQL) => computed(integer, sql`sum(${count})`);

/** The number of devices that a chunk has left: that of its `device_ids`, by a constraint of the table. */
const left = sql`${part.planned} - ${part.sent} - ${part.failed} - ${part.dropped}`;
const leftWhere = (condition: SQL) => sql`coalesce(sum(${left}) filter (where ${condition}), 0)`;
const isDead = sql`${part.state} = 'DEAD'`;
/** Condition on a chunk: it is not sent any more, whether or not the drop has been stored in it yet. */
const isCancelled = sql`${n.state} = 'CANCELLED' and ${part.state} in ('READY', 'WAITING', 'PARKED')`;

const share = selection({
  utcOffset: part.utcOffset,
  provider: computed(oneOf(providerNames), part.provider),
  planned: total(part.planned),
  sent: total(part.sent),
  failed: total(part.failed),
  dropped: computed(integer, sql`sum(${part.dropped}) + ${leftWhere(isCancelled)}`),
  deadLettered: computed(integer, leftWhere(isDead)),
  remaining: computed(integer, leftWhere(sql`not (${isDead} or ${isCancelled})`)),
});

/** Condition: it is paused as the database was restored from a back-up (hold.ts). */
export const isHeld = sql`(${n.completedAt} is null and ${n.state} = 'PAUSED' and ${n.heldAt} is not null)`;

const describedFields = {
  id: n.id,
  title: n.title,
  message: n.message,
  image: n.image,
  test: computed(boolean, sql`${n.kind} = 'TEST'`),
  state: computed(notificationState, n.state),
  acceptedAt: computed(text, isoTime(n.acceptedAt)),
  completedAt: computed(nullable(text), isoTime(n.completedAt)),
  recalledAt: computed(nullable(text), isoTime(n.recalledAt)),
  removalStopped: computed(boolean, sql`${n.removalStoppedAt} is not null`),
  isHeld: computed(boolean, isHeld),
  recipients: computed(integer, recipientsNow),
  breakdown: computed(
    listOf(share),
    sql`coalesce((
      select jsonb_agg(to_jsonb(summed)) from (
        select ${share} from ${parts}
        group by ${part.utcOffset}, ${part.provider} order by ${part.utcOffset}, ${part.provider}
      ) as summed
    ), '[]')`,
  ),
};
const described = selection(describedFields);

/** What notifications a list has; without any of these, all. */
interface Filter {
  /** Only the one that was sent with this key. */
  readonly sentWith?: ClientKey | undefined;
  /** Only those in one of these states. */
  readonly states?: readonly NotificationState[] | undefined;
}

const hasKey = (key: ClientKey) => sql`${notification.id} = (${notificationOfKey(key)})`;

/** That those which have not ended are not completed follows, but only when it is said is their index used. */
function isInState(states: readonly NotificationState[]): SQL {
  const isIn = sql`${notification.state} = any(${arrayLiteral(states)}::text[])`;
  const mayHaveEnded = states.some((state) => state === "COMPLETED" || state === "CANCELLED");
  return mayHaveEnded ? isIn : sql`${isIn} and ${notification.completedAt} is null`;
}

export function createProgress(db: Database) {
  return {
    /** Lists notifications, the newest first. */
    async list(
      { page, size }: PageRequest,
      { sentWith, states }: Filter = {},
    ): Promise<Page<NotificationProgress>> {
      const conditions = [...(sentWith ? [hasKey(sentWith)] : []), ...(states ? [isInState(states)] : [])];
      const wanted = conditions.length === 0 ? sql`true` : sql.join(conditions, sql` and `);
      const found = await rows(
        db,
        described,
        sql`
          select ${described} from (
            select * from ${notifications} where ${wanted}
            order by ${notification.id} desc limit ${size}::int offset ${page * size}::bigint
          ) as n
          order by ${n.id} desc`,
      );
      const totalElements = await db.$count(notifications, wanted);
      return { content: found.map(withSums), number: page, size, totalElements };
    },
    /** @throws ServiceError `notification_not_found` */
    async get(id: string): Promise<NotificationProgress> {
      const one = sql`select ${described} from ${notifications} n where ${n.id} = ${id}::uuid`;
      const [found] = isNotificationId(id) ? await rows(db, described, one) : [];
      if (!found) throw notificationNotFound();
      return withSums(found);
    },
  };
}

const nobodyNotice = "It has reached nobody: no live device was found for it.";
const heldNotice =
  "It is held by npm run hold, as it was unfinished in a restored back-up. Resume it, or cancel it; recall it if it had been recalled.";

function withSums({ breakdown, isHeld, ...rest }: RowOf<typeof describedFields>): NotificationProgress {
  const sum = (count: keyof Counts) => breakdown.reduce((all, one) => all + one[count], 0);
  const planned = sum("planned");
  const isForNobody = rest.state === "COMPLETED" && rest.recipients === 0 && planned === 0;
  return {
    ...rest,
    notice: isHeld ? heldNotice : isForNobody ? nobodyNotice : undefined,
    planned,
    sent: sum("sent"),
    failed: sum("failed"),
    dropped: sum("dropped"),
    deadLettered: sum("deadLettered"),
    remaining: sum("remaining"),
    breakdown,
  };
}

interface FailureReason {
  readonly provider: ProviderName;
  /** A status and the provider's error code, or a few words. */
  readonly reason: string;
  readonly devices: number;
}

const counted = selection({
  provider: computed(oneOf(providerNames), part.provider),
  reason: computed(text, sql`failed_reason`),
  devices: computed(integer, sql`sum(failed_devices::int)::int`),
});

/** @throws ServiceError `notification_not_found` */
export async function listFailures(db: Database, id: string): Promise<FailureReason[]> {
  const isKnown = isNotificationId(id) && (await db.$count(notifications, eq(notifications.id, id))) > 0;
  if (!isKnown) throw notificationNotFound();
  return rows(
    db,
    counted,
    sql`
      select ${counted} from ${notifications} n cross join ${parts}
      cross join lateral jsonb_each_text(${part.failures}) as counted (failed_reason, failed_devices)
      where ${n.id} = ${id}::uuid
      group by ${part.provider}, failed_reason order by sum(failed_devices::int) desc, ${part.provider}, failed_reason`,
  );
}
