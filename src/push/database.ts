/** The push service's part of the database: its migrations. */
import type { Migrations } from "../platform/database/migrations/migrations.ts";

export const pushMigrations: Migrations = {
  schema: "push",
  folder: new URL("../../drizzle/push", import.meta.url),
};
