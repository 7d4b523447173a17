-- What schema.ts cannot say, as Drizzle knows neither the columns that an index includes nor storage parameters. The
-- first migration runs it once the tables are there, before their indexes.

-- What a user has is read from these indexes alone, without the tables.
ALTER TABLE "push"."history_users" DROP CONSTRAINT "history_users_pkey",
	ADD CONSTRAINT "history_users_pkey" PRIMARY KEY ("user_id") INCLUDE ("user_number");
--> statement-breakpoint
ALTER TABLE "push"."history_blocks" DROP CONSTRAINT "history_blocks_pkey",
	ADD CONSTRAINT "history_blocks_pkey" PRIMARY KEY ("user_block", "notification_id") INCLUDE ("recipient_bits");
--> statement-breakpoint
ALTER TABLE "push"."history_views" DROP CONSTRAINT "history_views_pkey",
	ADD CONSTRAINT "history_views_pkey" PRIMARY KEY ("user_number", "notification_id") INCLUDE ("viewed_at");
--> statement-breakpoint
-- That needs pages which are known to be visible to all, and vacuum sees to it.
ALTER TABLE "push"."history_blocks" SET (autovacuum_vacuum_insert_scale_factor = 0.01, autovacuum_vacuum_scale_factor = 0.01);
--> statement-breakpoint
ALTER TABLE "push"."history_views" SET (autovacuum_vacuum_insert_scale_factor = 0.01, autovacuum_vacuum_scale_factor = 0.01);
--> statement-breakpoint
ALTER TABLE "push"."history_entries" SET (autovacuum_vacuum_insert_scale_factor = 0.01, autovacuum_vacuum_scale_factor = 0.01);
