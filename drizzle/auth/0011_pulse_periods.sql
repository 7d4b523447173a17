ALTER TABLE "auth"."database_pulse" ADD COLUMN "period_began_at" timestamp (3) with time zone;--> statement-breakpoint
ALTER TABLE "auth"."database_pulse" ADD COLUMN "least_paused_for" interval DEFAULT '0' NOT NULL;--> statement-breakpoint
ALTER TABLE "auth"."database_pulse" ADD COLUMN "least_paused_for_before" interval DEFAULT '0' NOT NULL;