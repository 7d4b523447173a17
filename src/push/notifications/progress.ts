/**
 * How far notifications have come: sums over their chunks, by offset and provider. One statement for each call,
 * so that the figures are of one moment and add up:
 * planned = sent + failed + dropped + deadLettered + remaining.
 */
import { type SQL, sql } from "drizzle-orm";
import { type Database, rows } from "../../platform/database/database.ts";
import { notificationNotFound } from "../errors.ts";
import type { ProviderName } from "../provider-settings.ts";
import { isNotificationId, type NotificationState } from "./lock-notification.ts";
import type { Page, PageRequest } from "./page.ts";

/** Devices, by what has become of them. */
interface Counts {
  readonly planned: number;
  readonly sent: number;
  /** Refused by the provider, or reported dead. */
  readonly failed: number;
  /** Not sent: expired, removed or cancelled before it came to them. */
  readonly dropped: number;
  /** Given up; an operator may replay them. */
  readonly deadLettered: number;
  /** Still to be sent to. */
  readonly remaining: number;
}

/** The part of one offset and one provider. */
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
  /** ISO 8601, UTC, with milliseconds. */
  readonly acceptedAt: string;
  readonly completedAt: string | null;
  /** So many devices were reported dead that they are no longer removed. */
  readonly removalStopped: boolean;
  /** Users with a history entry. */
  readonly recipients: number;
  readonly breakdown: ProgressShare[];
}

type Described = Omit<NotificationProgress, keyof Counts | "breakdown">;

const iso = (column: SQL) => sql`to_char(${column} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;

/** What a chunk still has, its devices not counted one by one: a constraint of the table says it is the same. */
const left = sql`planned - sent - failed - dropped`;

const columns = sql`
  n.id::text, n.title, n.message, n.image, n.user_ids is not null as test, n.state,
  ${iso(sql`n.accepted_at`)} as "acceptedAt", ${iso(sql`n.completed_at`)} as "completedAt",
  n.removal_stopped_at is not null as "removalStopped", n.recipients,
  coalesce((
    select jsonb_agg(to_jsonb(share)) from (
      select utc_offset as "utcOffset", provider, sum(planned) as planned, sum(sent) as sent, sum(failed) as failed,
        sum(dropped) as dropped, coalesce(sum(${left}) filter (where state = 'DEAD'), 0) as "deadLettered",
        coalesce(sum(${left}) filter (where state <> 'DEAD'), 0) as remaining
      from push.delivery_chunks where notification_id = n.id
      group by utc_offset, provider order by utc_offset, provider
    ) as share
  ), '[]') as breakdown`;

interface Progress {
  /** The newest first. */
  list(request: PageRequest): Promise<Page<NotificationProgress>>;
  /** @throws ServiceError `notification_not_found` */
  get(id: string): Promise<NotificationProgress>;
}

export function createProgress(db: Database): Progress {
  return {
    async list({ page, size }) {
      const found = await rows<
        Described & { breakdown: ProgressShare[] } & { total: number; isThere: boolean }
      >(
        db,
        sql`
          select ${columns}, total, n.id is not null as "isThere"
          from (select count(*)::int as total from push.notifications) as counted
          left join (
            select * from push.notifications order by id desc limit ${size}::int offset ${page * size}::bigint
          ) as n on true
          order by n.id desc`,
      );
      const content = found.filter(({ isThere }) => isThere).map(withSums);
      return { content, number: page, size, totalElements: found[0]?.total ?? 0 };
    },
    async get(id) {
      if (!isNotificationId(id)) throw notificationNotFound();
      const [found] = await rows<Described & { breakdown: ProgressShare[] }>(
        db,
        sql`select ${columns} from push.notifications n where n.id = ${id}::uuid`,
      );
      if (!found) throw notificationNotFound();
      return withSums(found);
    },
  };
}

function withSums(row: Described & { readonly breakdown: ProgressShare[] }): NotificationProgress {
  const {
    id,
    title,
    message,
    image,
    test,
    state,
    acceptedAt,
    completedAt,
    removalStopped,
    recipients,
    breakdown,
  } = row;
  const sum = (count: keyof Counts) => breakdown.reduce((total, share) => total + share[count], 0);
  return {
    id,
    title,
    message,
    image,
    test,
    state,
    acceptedAt,
    completedAt,
    removalStopped,
    recipients,
    planned: sum("planned"),
    sent: sum("sent"),
    failed: sum("failed"),
    dropped: sum("dropped"),
    deadLettered: sum("deadLettered"),
    remaining: sum("remaining"),
    breakdown,
  };
}
