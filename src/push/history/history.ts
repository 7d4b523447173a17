/** The history of users: planning writes the entries; here they are read, and marked as viewed by their own user. */

import { type InputError, invalidInput } from "../../platform/base/errors.ts";
import type { Database } from "../../platform/database/database.ts";
import { onlyRow, rawRows } from "../../platform/database/sql/statements.ts";
import type { Page, PageRequest as PlainPageRequest } from "../pages.ts";
import { textsFor } from "./entry-texts.ts";
import { orderOf } from "./history-order.ts";
import {
  allViewedStatement,
  pageEntry,
  pageStatement,
  pageTotal,
  pageViewedStatement,
  type Slice,
  summary,
} from "./history-statements.ts";

/** An entry of a user's history. */
interface HistoryEntry {
  /** The notification's id. */
  readonly id: string;
  readonly userId: string;
  /** Whether it had been viewed before this request. */
  readonly viewed: boolean;
  readonly notification: { readonly title: string; readonly message: string; readonly image: string | null };
  /** What a tap opens; undefined: nothing was said. */
  readonly link: string | undefined;
  /** Strings for the app; undefined: it has none. */
  readonly data: Readonly<Record<string, string>> | undefined;
  /** When the notification was accepted: RFC 3339, UTC, with milliseconds. */
  readonly sendAt: string;
}

export interface PageRequest extends PlainPageRequest {
  /** The parameters `sort`, which {@link orderOf} reads; none: the newest first. */
  readonly sort: readonly string[];
}

export type History = ReturnType<typeof createHistory>;

/** The most entries of a page. */
export const largestPage = 100;

export function createHistory({ db }: { readonly db: Database }) {
  return {
    /**
     * A page, which is empty beyond the end. The total, the content and the marking are of one moment.
     * @param markViewed marks the entries of the page as viewed; they are returned as they were before
     * @param languages of the reader in canonical form, the most wanted first
     * @throws invalid_request
     */
    async page(
      userId: string,
      request: PageRequest,
      markViewed: boolean,
      languages: readonly string[] = [],
    ): Promise<Page<HistoryEntry>> {
      const found = await rawRows(db, pageStatement(sliceOf(userId, request), markViewed));
      const entries = found.flatMap((row) => pageEntry.readJoined(row, "id") ?? []);
      const textOf = await textsFor(db, entries, languages);
      return {
        content: entries.map((entry) => {
          const { id, viewed, image, sendAt, link, data } = entry;
          const { title, message } = textOf(entry);
          const said = { link: link ?? undefined, data: data ?? undefined };
          return { id, userId, viewed, notification: { title, message, image }, ...said, sendAt };
        }),
        number: request.page,
        size: request.size,
        totalElements: Number(pageTotal.read(found[0]).total),
      };
    },

    /** Whether all entries, or those of a page, are viewed; true if there are none. @throws invalid_request */
    async summary(userId: string, request?: PageRequest): Promise<boolean> {
      const statement = request ? pageViewedStatement(sliceOf(userId, request)) : allViewedStatement(userId);
      return (await onlyRow(db, summary, statement)).isViewed;
    },
  };
}

function sliceOf(userId: string, { page, size, sort }: PageRequest): Slice {
  const errors: InputError[] = [];
  if (!(Number.isInteger(page) && page >= 0)) {
    errors.push({ pointer: "/query/page", message: "must be an integer from 0" });
  }
  if (!(Number.isInteger(size) && size >= 1 && size <= largestPage)) {
    errors.push({ pointer: "/query/size", message: `must be an integer from 1 to ${largestPage}` });
  }
  if (errors.length > 0) throw invalidInput(errors);
  // An offset beyond MAX_SAFE_INTEGER is not exact, but no user has that many entries.
  return {
    userId,
    order: orderOf(sort),
    limit: size,
    offset: Math.min(page * size, Number.MAX_SAFE_INTEGER),
  };
}
