/** What a device is. */
import { type SQL, type SQLWrapper, sql } from "drizzle-orm";

export type Platform = "ios" | "android" | "web";

/** An expression: what a device is, by its app or else by its provider. FCM reaches all, so null: it is not known. */
export const platformOf = (said: SQLWrapper, provider: SQLWrapper): SQL =>
  sql`coalesce(${said}, case ${provider} when 'apns' then 'ios' when 'webpush' then 'web' end)`;
