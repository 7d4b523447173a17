import { type SQL, sql } from "drizzle-orm";
import { type InputError, invalidInput } from "../../platform/base/errors.ts";
import { names } from "../../platform/database/sql/readers.ts";
import { historyBlocks, historyViews } from "../schema.ts";
import { isViewed } from "./history-statements.ts";

const fields = ["sendAt", "viewed", "id"] as const;
type Field = (typeof fields)[number];
interface Term {
  readonly field: Field;
  readonly direction: "asc" | "desc";
}

/**
 * The `order by` list for the parameter `sort`: each value has fields and, after them, `asc` or `desc` for all of them,
 * separated by commas and in any case. Without a field the newest come first. Ties are ordered by id, in the direction
 * of the last field.
 * @throws invalid_request
 */
export function orderOf(sort: readonly string[]): SQL {
  const wanted = sort.flatMap(termsOf);
  const terms = wanted.length === 0 ? [{ field: "sendAt", direction: "desc" } as const] : wanted;
  // A repeated field has no effect, and neither has a field after the id.
  const firsts = terms.filter(
    ({ field }, index) => terms.findIndex((other) => other.field === field) === index,
  );
  const byId = firsts.findIndex(({ field }) => field === "id");
  const last = firsts[byId] ?? { field: "id", direction: terms.at(-1)?.direction ?? "asc" };
  const before = byId < 0 ? firsts : firsts.slice(0, byId);
  const previous = before.at(-1);
  // Ids are in the order of time, so `sendAt` before `id` can be left out; then the index gives the order.
  const needed =
    previous?.field === "sendAt" && previous.direction === last.direction ? before.slice(0, -1) : before;
  return sql.join(
    [...needed, last].map(({ field, direction }) => sql`${column(field)} ${sql.raw(direction)}`),
    sql`, `,
  );
}

function termsOf(value: string): Term[] {
  if (value === "") return [];
  const words = value.toLowerCase().split(",");
  const last = words.at(-1);
  const hasDirection = last === "asc" || last === "desc";
  const named = hasDirection ? words.slice(0, -1) : words;
  if (named.length === 0) throw invalidInput([problem]);
  return named.map((name) => {
    const field = fields.find((one) => one.toLowerCase() === name);
    if (!field) throw invalidInput([problem]);
    return { field, direction: last === "desc" ? "desc" : "asc" };
  });
}

const problem: InputError = {
  pointer: "/query/sort",
  message: `must be ${fields.join(", ")} or several of them, with ",asc" or ",desc" at the end`,
};

const { notificationId } = names(historyBlocks);
const { viewedAt } = names(historyViews);

/** An entry that has just been marked stays among the unread for a while, or who marks page by page would skip some. */
const isAmongViewed = isViewed(sql`${viewedAt} <= now() - interval '10 minutes'`);

function column(field: Field): SQL {
  if (field === "viewed") return sql`(${isAmongViewed})`;
  // The milliseconds of acceptance are the first 48 bits of an id.
  return field === "sendAt" ? sql`left(${notificationId}::text, 13) collate "C"` : notificationId;
}
