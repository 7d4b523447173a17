/** What a PostgreSQL schema consists of, so that two databases can be compared. */
import type { PGlite } from "@electric-sql/pglite";

/**
 * A line for each table, column, index, constraint, sequence, function and trigger: its name and all that is defined of
 * it, apart from the order of columns, and the names that PostgreSQL gives to the indexes of partitions.
 */
export async function definitionsOf(database: PGlite, schema: string): Promise<ReadonlySet<string>> {
  // With an empty search path, every name is shown with its schema.
  await database.exec("set search_path = ''");
  const { rows } = await database.query<{ line: string }>(definitions, [schema]);
  return new Set(rows.map(({ line }) => line));
}

const definitions = `
  with relations as (
    select *, oid::regclass::text as name, coalesce(' with ' || array_to_string(reloptions, ', '), '') as options
    from pg_class where relnamespace = $1::text::regnamespace
  )
  select concat('table ', name, ' partition by ' || pg_get_partkeydef(oid), ' ' || pg_get_expr(relpartbound, oid), options)
    as line
  from relations where relkind in ('r', 'p')
  union all
  select concat('column ', name, '.', attname, ' ', format_type(atttypid, atttypmod),
    ' collate ' || (select collname from pg_collation where oid = nullif(attcollation, 100)),
    ' default ' || pg_get_expr(adbin, adrelid), case when attnotnull then ' not null' end)
  from relations join pg_attribute on attrelid = relations.oid and attnum > 0 and not attisdropped
    left join pg_attrdef on adrelid = attrelid and adnum = attnum
  where relkind in ('r', 'p')
  union all
  select concat(regexp_replace(pg_get_indexdef(oid), case when relispartition then 'INDEX \\S+' else '^$' end, 'INDEX'), options)
  from relations where relkind in ('i', 'I')
  union all
  select concat('constraint ', name, '.', conname, ' ', pg_get_constraintdef(pg_constraint.oid))
  from relations join pg_constraint on conrelid = relations.oid
  union all
  select concat('sequence ', name, ' ', format_type(seqtypid, null), ' ', seqstart, ' ', seqincrement, ' ', seqmax)
  from relations join pg_sequence on seqrelid = relations.oid
  union all
  select pg_get_functiondef(oid) from pg_proc where pronamespace = $1::text::regnamespace
  union all
  select pg_get_triggerdef(pg_trigger.oid) from relations join pg_trigger on tgrelid = relations.oid
  where not tgisinternal`;
