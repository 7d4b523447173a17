/**
 * The progress of notifications: sums over their chunks, by offset and provider. Each call is one statement, so that
 * the figures are of one moment and add up:
 * planned = sent + failed + dropped + deadLettered + remaining.
 */
import { type SQL, sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/names.ts";
import { boolean, integer, listOf, nullable, oneOf, text } from "../../platform/database/sql/readers.ts";
import {
  computed,
  isoTime,
  type RowOf,
  rawRows,
  rows,
  selection,
} from "../../platform/database/sql/statements.ts";
import { notificationNotFound } from "../errors.ts";
import { type ProviderName, providerNames } from "../provider-settings.ts";
import { deliveryChunks, notifications } from "../schema.ts";
import { notificationOfKey } from "./idempotency-key.ts";
import { isNotificationId, type NotificationState, notificationState } from "./lock-notification.ts";
import type { Page, PageRequest } from "./page.ts";

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
const chunk = names(deliveryChunks);

const total = (count: SQL) => computed(integer, sql`sum(${count})`);

/** The number of devices that a chunk has left: that of its `device_ids`, by a constraint of the table. */
const left = sql`${chunk.planned} - ${chunk.sent} - ${chunk.failed} - ${chunk.dropped}`;
const leftWhere = (condition: SQL) => sql`coalesce(sum(${left}) filter (where ${condition}), 0)`;
const isDead = sql`${chunk.state} = 'DEAD'`;
/** Condition on a chunk: it is not sent any more, whether or not the drop has been stored in it yet. */
const isCancelled = sql`${n.state} = 'CANCELLED' and ${chunk.state} = 'PENDING'`;

const share = selection({
  utcOffset: chunk.utcOffset,
  provider: computed(oneOf(providerNames), chunk.provider),
  planned: total(chunk.planned),
  sent: total(chunk.sent),
  failed: total(chunk.failed),
  dropped: computed(integer, sql`sum(${chunk.dropped}) + ${leftWhere(isCancelled)}`),
  deadLettered: computed(integer, leftWhere(isDead)),
  remaining: computed(integer, leftWhere(sql`not (${isDead} or ${isCancelled})`)),
});

const describedFields = {
  id: n.id,
  title: n.title,
  message: n.message,
  image: n.image,
  test: computed(boolean, sql`${n.userIds} is not null`),
  state: computed(notificationState, n.state),
  acceptedAt: computed(text, isoTime(n.acceptedAt)),
  completedAt: computed(nullable(text), isoTime(n.completedAt)),
  recalledAt: computed(nullable(text), isoTime(n.recalledAt)),
  removalStopped: computed(boolean, sql`${n.removalStoppedAt} is not null`),
  recipients: n.recipients,
  breakdown: computed(
    listOf(share),
    sql`coalesce((
      select jsonb_agg(to_jsonb(summed)) from (
        select ${share} from ${deliveryChunks} where ${chunk.notificationId} = ${n.id}
        group by ${chunk.utcOffset}, ${chunk.provider} order by ${chunk.utcOffset}, ${chunk.provider}
      ) as summed
    ), '[]')`,
  ),
};
const described = selection(describedFields);
const counted = selection({ total: computed(integer, sql`total`) });

interface Progress {
  /**
   * Lists notifications, the newest first.
   * @param sentWith the hash of an idempotency key: only the one sent with it
   */
  list(request: PageRequest, sentWith?: Uint8Array): Promise<Page<NotificationProgress>>;
  /** @throws ServiceError `notification_not_found` */
  get(id: string): Promise<NotificationProgress>;
}

export function createProgress(db: Database): Progress {
  return {
    async list({ page, size }, sentWith) {
      const wanted = sentWith ? sql`${notification.id} = (${notificationOfKey(sentWith)})` : sql`true`;
      const found = await rawRows(
        db,
        sql`
          select ${described}, ${counted}
          from (select count(*)::int as total from ${notifications} where ${wanted}) as counted
          left join (
            select * from ${notifications} where ${wanted}
            order by ${notification.id} desc limit ${size}::int offset ${page * size}::bigint
          ) as n on true
          order by ${n.id} desc`,
      );
      const content = found.flatMap((row) => {
        const one = described.readJoined(row, "id");
        return one ? [withSums(one)] : [];
      });
      return { content, number: page, size, totalElements: counted.read(found[0]).total };
    },
    async get(id) {
      if (!isNotificationId(id)) throw notificationNotFound();
      const [found] = await rows(
        db,
        described,
        sql`select ${described} from ${notifications} n where ${n.id} = ${id}::uuid`,
      );
      if (!found) throw notificationNotFound();
      return withSums(found);
    },
  };
}

function withSums({ breakdown, ...rest }: RowOf<typeof describedFields>): NotificationProgress {
  const sum = (count: keyof Counts) => breakdown.reduce((all, one) => all + one[count], 0);
  const planned = sum("planned");
  const isForNobody = rest.state === "COMPLETED" && rest.recipients === 0 && planned === 0;
  return {
    ...rest,
    notice: isForNobody ? "It has reached nobody: no live device was found for it." : undefined,
    planned,
    sent: sum("sent"),
    failed: sum("failed"),
    dropped: sum("dropped"),
    deadLettered: sum("deadLettered"),
    remaining: sum("remaining"),
    breakdown,
  };
}
