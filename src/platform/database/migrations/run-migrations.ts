/**
 * Runs migrations, each in a transaction with its entry in the history. `CREATE INDEX CONCURRENTLY` cannot be in one: a
 * migration with it has no other statements, and an index that was not completed is dropped and built anew.
 */
import { sql } from "drizzle-orm";
import type { Database } from "../database.ts";
import { boolean, names } from "../sql/readers.ts";
import { computed, rows, selection } from "../sql/statements.ts";
import { allMigrations, histories, historyOf, type Migrations, newestRun } from "./migrations.ts";

/**
 * Runs the migrations that were not run, while no other process does. @param report called for each index
 * @throws ForeignHistoryError if the database has another history; it has changed nothing then
 */
export async function runMigrations(
  db: Database,
  migrations: Migrations,
  startAnew: string,
  report?: (message: string) => void,
): Promise<void> {
  const history = historyOf(migrations);
  const { id, hash, createdAt } = names(history);
  await db.execute(sql`create schema if not exists ${sql.identifier(histories.schemaName)}`);
  await db.execute(sql`
    create table if not exists ${history} (${id} serial primary key, ${hash} text not null, ${createdAt} bigint)`);
  const newest = await newestRun(db, migrations, startAnew);
  for (const migration of allMigrations(migrations)) {
    if (migration.createdAt <= newest) continue;
    const indexes = concurrentIndexes(migration.statements);
    if (indexes) await build(db, indexes, report);
    await db.transaction(async (tx) => {
      if (!indexes) for (const statement of migration.statements) await tx.execute(sql.raw(statement));
      await tx.insert(history).values({ hash: migration.hash, createdAt: migration.createdAt });
    });
  }
}

/** An index that is built while others write. */
interface ConcurrentIndex {
  /** Qualified and quoted. */
  readonly name: string;
  readonly create: string;
}

/** The statement as drizzle-kit writes it, with or without comments before it. */
const createConcurrently =
  /^(?:\s|--.*\n)*create (?:unique )?index concurrently (?:if not exists )?("[^"]+") on (?:only )?("[^"]+")\./i;

/** The indexes that a migration builds concurrently; undefined for any other. @throws if it does something else, too */
export function concurrentIndexes(statements: readonly string[]): readonly ConcurrentIndex[] | undefined {
  const indexes = statements.flatMap((create) => {
    const [, index, schema] = createConcurrently.exec(create) ?? [];
    return index && schema ? [{ name: `${schema}.${index}`, create }] : [];
  });
  if (indexes.length === 0) return undefined;
  if (indexes.length === statements.length) return indexes;
  throw new Error(
    "A migration with CREATE INDEX CONCURRENTLY cannot do anything else: put that into another one.",
  );
}

async function build(
  db: Database,
  indexes: readonly ConcurrentIndex[],
  report?: (message: string) => void,
): Promise<void> {
  const found = selection({ isValid: computed(boolean, sql`indisvalid`) });
  // It waits until all transactions that began before it have ended, and no other statement waits behind it meanwhile.
  await db.execute(sql`set lock_timeout = 0`);
  for (const { name, create } of indexes) {
    const [earlier] = await rows(
      db,
      found,
      sql`select ${found} from pg_index where indexrelid = to_regclass(${name})`,
    );
    if (earlier?.isValid) continue;
    // An interrupted attempt leaves an invalid index, which is written to and never read.
    if (earlier) await db.execute(sql.raw(`drop index concurrently ${name}`));
    report?.(
      `Building index ${name}, while others write. It waits for transactions that began before it, such as a dump.`,
    );
    await db.execute(sql.raw(create));
  }
  await db.execute(sql`reset lock_timeout`);
}
