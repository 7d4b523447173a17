CREATE TABLE "push"."dead_reports" (
	"device_id" bigint PRIMARY KEY NOT NULL,
	"provider" text NOT NULL,
	"user_id" text COLLATE "C" NOT NULL,
	"dead_as_of" timestamp (3) with time zone NOT NULL,
	"reported_at" timestamp (3) with time zone NOT NULL,
	"state" text NOT NULL,
	CONSTRAINT "dead_reports_state" CHECK ("push"."dead_reports"."state" in ('WAITING', 'CONFIRMED', 'REMOVED'))
);
--> statement-breakpoint
CREATE TABLE "push"."provider_answers" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"provider" text NOT NULL,
	"answered_at" timestamp (3) with time zone NOT NULL,
	"answered_users" integer NOT NULL,
	"answered_dead" integer NOT NULL
);
--> statement-breakpoint
ALTER TABLE "push"."provider_paces" ADD COLUMN "removals_held_at" timestamp (3) with time zone;--> statement-breakpoint
CREATE INDEX "dead_reports_provider" ON "push"."dead_reports" USING btree ("provider","reported_at");--> statement-breakpoint
CREATE INDEX "provider_answers_newest" ON "push"."provider_answers" USING btree ("provider","id");