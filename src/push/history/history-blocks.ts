/**
 * How the history is stored. A user gets a number with the first entry. For each notification there is a row for each
 * block of 512 users with consecutive numbers, with a bit for each user; each view of an entry is a row.
 */
import { type SQL, type SQLWrapper, sql } from "drizzle-orm";
import { arrayLiteral, type Executor } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/readers.ts";
import { arrayItems } from "../../platform/database/sql/statements.ts";
import { historyEntries } from "../recipients-schema.ts";
import { blockSize, historyBlocks, historyUserNumbers, historyUsers } from "../schema.ts";

const user = names(historyUsers);
const known = names(historyUsers, "known");
const block = names(historyBlocks);
const entry = names(historyEntries);
const size = sql.raw(String(blockSize));
const none = sql`0::bit(${size})`;

/** An expression: the block of the user with this number. */
export const blockOf = (number: SQLWrapper): SQL => sql`(${number} / ${size})::int`;

/** An expression: the position in the block's bits of the user with this number. */
export const bitOf = (number: SQLWrapper): SQL => sql`(${number} % ${size})::int`;

/** An expression: the number of users with an entry of the notification. */
export const recipientsOf = (notificationId: SQL): SQL => sql`
  ((select coalesce(sum(bit_count(${block.recipientBits})), 0)::int from ${historyBlocks}
  where ${block.notificationId} = ${notificationId})
  + (select count(*)::int from ${historyEntries} where ${entry.notificationId} = ${notificationId}))`;

/**
 * A query for `left join lateral`: `known_number`, of the user with this id, if there is one. `offset 0` makes
 * PostgreSQL look up each user.
 * @param userId with the name of its table
 */
export const numberOf = (userId: SQLWrapper): SQL => sql`
  (select ${known.userNumber} as known_number from ${historyUsers} known where ${known.userId} = ${userId} offset 0)
  as numbered_user on true`;

const sequence = `${historyUserNumbers.schema}.${historyUserNumbers.seqName}`;

/** An expression: a number that no user has had. */
export const nextNumber: SQL = sql`nextval(${sequence}::text)`;

/** The end of an insert into the blocks as `b`: a block that is there gets the bits that it lacks. */
const addBits = sql`
  on conflict (${block.userBlock}, ${block.notificationId})
  do update set ${block.recipientBits} = b.${block.recipientBits} | excluded.${block.recipientBits}
  where b.${block.recipientBits} | excluded.${block.recipientBits} <> b.${block.recipientBits}`;

/** A statement that gives a user an entry of each notification. @param ids an array of uuids */
export const giveEntries = (userNumber: number, ids: SQL): SQL => {
  const number = sql`${userNumber}::bigint`;
  return sql`
    insert into ${historyBlocks} as b (${block.userBlock}, ${block.notificationId}, ${block.recipientBits})
    select ${blockOf(number)}, given_id, set_bit(${none}, ${bitOf(number)}, 1)
    from unnest(${ids}) as given (given_id) order by given_id
    ${addBits}`;
};

/** A statement that takes a user's entries away, those of a notification with this id or a later one. */
export const takeEntries = (userNumber: number, since: string): SQL => {
  const number = sql`${userNumber}::bigint`;
  return sql`
    update ${historyBlocks} set ${block.recipientBits} = set_bit(${block.recipientBits}, ${bitOf(number)}, 0)
    where ${block.userBlock} = ${blockOf(number)} and ${block.notificationId} >= ${since}::uuid
      and get_bit(${block.recipientBits}, ${bitOf(number)}) = 1`;
};

/**
 * `numbered`, for a `with` list: gives users a number who have none. Rows are written in the same order by all, so that
 * no two statements deadlock.
 * @param found the name of an expression before it, with columns `person` (a user's id, any number of times),
 *   `minutes` (an offset), `device` (an id) and `known_number` (of {@link numberOf})
 */
export function numbersFor(found: SQL): SQL {
  return sql`
    numbered as (
      insert into ${historyUsers} (${user.userId}, ${user.userNumber})
      select person, next_number from (
        select person, ${nextNumber} as next_number from (
          select person from ${found} where known_number is null
          group by person order by min(minutes), min(device) offset 0
        ) as unknown
      ) as given
      order by person
      on conflict (${user.userId}) do update set ${user.userId} = excluded.${user.userId}
      returning ${user.userId} as person, ${user.userNumber} as known_number
    )`;
}

/**
 * Expressions of a `with` list that give users an entry each in the blocks, unless they have it, and a number.
 * @param found as that of {@link numbersFor}
 */
export function entriesFor(found: SQL, notificationId: SQL): SQL {
  return sql`${numbersFor(found)},
    entries as (
      insert into ${historyBlocks} as b (${block.userBlock}, ${block.notificationId}, ${block.recipientBits})
      select ${blockOf(sql`known_number`)} as block_number, ${notificationId},
        bit_or(set_bit(${none}, ${bitOf(sql`known_number`)}, 1))
      from (
        select known_number from ${found} where known_number is not null
        union all select known_number from numbered
      ) as members
      group by block_number order by block_number
      ${addBits}
    )`;
}

const key = sql.raw("hashtext('push.plan')");

/**
 * The advisory lock between planning (shared) and what removes a user's number (exclusive), until the end of the
 * transaction. It is acquired before the statement that reads what it guards.
 */
export const planLock = {
  /** Waits until nobody removes a user. @param tx a transaction */
  async shared(tx: Executor): Promise<void> {
    await tx.execute(sql`select pg_advisory_xact_lock_shared(${key})`);
  },
  /** Waits until no step of planning runs, and lets none begin. @param tx a transaction */
  async exclusive(tx: Executor): Promise<void> {
    await tx.execute(sql`select pg_advisory_xact_lock(${key})`);
  },
};

const userKey = sql.raw("hashtext('push.user')");
/** The keys of users; two of them may have the same. */
const keysOf = (users: SQLWrapper): SQL => sql`
  (select distinct hashtext(one) as user_key from ${arrayItems(users)} as given (one) order by user_key) as keyed`;

/**
 * Advisory locks of users, until the end of the transaction: between what plans for few of them without {@link
 * planLock} (shared) and what removes their numbers (exclusive), which has that lock too. They are acquired before the
 * statement that reads what they guard.
 */
export const userLocks = {
  /** An expression: whether all could be acquired. It waits for nobody. @param users an array of their ids */
  areShared: (users: SQLWrapper): SQL => sql`
    (select coalesce(bool_and(pg_try_advisory_xact_lock_shared(${userKey}, user_key)), true)
    from ${keysOf(users)})`,
  /** A statement that acquires them. */
  exclusive: (users: readonly string[]): SQL =>
    sql`select pg_advisory_xact_lock(${userKey}, user_key) from ${keysOf(sql`${arrayLiteral(users)}`)}`,
};
