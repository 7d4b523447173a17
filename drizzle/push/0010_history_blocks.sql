-- The table goes at the end: who reads it meanwhile, as a dump does, must come before or after all of this.
LOCK TABLE "push"."history" IN ACCESS EXCLUSIVE MODE;--> statement-breakpoint
CREATE SEQUENCE "push"."history_user_numbers" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1;--> statement-breakpoint
CREATE TABLE "push"."history_blocks" (
	"user_block" integer NOT NULL,
	"notification_id" uuid NOT NULL,
	"recipient_bits" bit(512) NOT NULL,
	CONSTRAINT "history_blocks_pkey" PRIMARY KEY("user_block","notification_id") INCLUDE ("recipient_bits")
);
--> statement-breakpoint
CREATE TABLE "push"."history_users" (
	"user_id" text COLLATE "C" NOT NULL,
	"user_number" bigint NOT NULL,
	CONSTRAINT "history_users_pkey" PRIMARY KEY("user_id") INCLUDE ("user_number")
);
--> statement-breakpoint
CREATE TABLE "push"."history_views" (
	"user_number" bigint NOT NULL,
	"notification_id" uuid NOT NULL,
	"viewed_at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "history_views_pkey" PRIMARY KEY("user_number","notification_id") INCLUDE ("viewed_at")
);
--> statement-breakpoint
CREATE INDEX "history_blocks_age" ON "push"."history_blocks" USING btree ("notification_id" NULLS FIRST);--> statement-breakpoint
CREATE UNIQUE INDEX "history_users_number" ON "push"."history_users" USING btree ("user_number");--> statement-breakpoint
CREATE INDEX "history_views_age" ON "push"."history_views" USING btree ("notification_id" NULLS FIRST);--> statement-breakpoint
-- What a user has is read without the tables where the pages are known to be visible to all, which vacuum sees to.
ALTER TABLE "push"."history_blocks" SET (autovacuum_vacuum_insert_scale_factor = 0.01, autovacuum_vacuum_scale_factor = 0.01);--> statement-breakpoint
ALTER TABLE "push"."history_views" SET (autovacuum_vacuum_insert_scale_factor = 0.01, autovacuum_vacuum_scale_factor = 0.01);--> statement-breakpoint
-- What was a row for each user and notification becomes a bit. Users who live at one offset get the same notifications, so
-- they come to the same blocks; those whose devices were registered one after the other are also planned together.
INSERT INTO "push"."history_users" ("user_id", "user_number")
SELECT "user_id", nextval('push.history_user_numbers') FROM (
	SELECT "user_id" FROM (SELECT DISTINCT "user_id" FROM "push"."history") AS "known"
	LEFT JOIN (
		SELECT "user_id", min("utc_offset") AS "utc_offset", min("id") AS "device_id" FROM "push"."devices" GROUP BY "user_id"
	) AS "living" USING ("user_id")
	ORDER BY "utc_offset", "device_id", "user_id"
) AS "ordered";--> statement-breakpoint
INSERT INTO "push"."history_blocks" ("user_block", "notification_id", "recipient_bits")
SELECT ("user_number" / 512)::int, "notification_id", bit_or(set_bit(0::bit(512), ("user_number" % 512)::int, 1))
FROM "push"."history" JOIN "push"."history_users" USING ("user_id")
GROUP BY 1, 2 ORDER BY 2, 1;--> statement-breakpoint
INSERT INTO "push"."history_views" ("user_number", "notification_id", "viewed_at")
SELECT "user_number", "notification_id", coalesce("viewed_at", '-infinity')
FROM "push"."history" JOIN "push"."history_users" USING ("user_id")
WHERE "viewed" ORDER BY 1, 2;--> statement-breakpoint
-- Statements are planned by these right after the migration.
ANALYZE "push"."history_users";--> statement-breakpoint
ANALYZE "push"."history_blocks";--> statement-breakpoint
ANALYZE "push"."history_views";
