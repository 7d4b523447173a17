CREATE TABLE "push"."plan_ranges" (
	"notification_id" uuid NOT NULL,
	"after_id" bigint NOT NULL,
	"through_id" bigint,
	"range_number" integer NOT NULL,
	"job_id" uuid,
	CONSTRAINT "plan_ranges_pkey" PRIMARY KEY("notification_id","after_id")
);
--> statement-breakpoint
DROP INDEX "push"."devices_time_zone";--> statement-breakpoint
CREATE INDEX "devices_place" ON "push"."devices" USING btree (coalesce("time_zone", "utc_offset"::text),"id");--> statement-breakpoint
-- The planner has statistics of an index on an expression only after this.
ANALYZE "push"."devices";--> statement-breakpoint
-- What is not planned yet is parked, and the completion sweep gives it a job. History that has been recorded already is
-- not recorded again.
INSERT INTO "push"."plan_ranges" ("notification_id", "after_id", "through_id", "range_number")
SELECT "id", "planned_through", "plan_until", 0 FROM "push"."notifications"
WHERE "planned_at" is null and "state" in ('PLANNING', 'PAUSED');--> statement-breakpoint
ALTER TABLE "push"."notifications" DROP COLUMN "recorded_user";--> statement-breakpoint
ALTER TABLE "push"."notifications" DROP COLUMN "recorded_device";--> statement-breakpoint
ALTER TABLE "push"."notifications" DROP COLUMN "recorded_at";--> statement-breakpoint
ALTER TABLE "push"."notifications" DROP COLUMN "planned_through";--> statement-breakpoint
ALTER TABLE "push"."notifications" DROP COLUMN "plan_until";