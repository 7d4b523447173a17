CREATE SCHEMA "push";
--> statement-breakpoint
CREATE TABLE "push"."delivery_chunks" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"notification_id" uuid NOT NULL,
	"provider" text NOT NULL,
	"utc_offset" smallint NOT NULL,
	"state" text NOT NULL,
	"device_ids" bigint[] NOT NULL,
	"planned" integer NOT NULL,
	"sent" integer NOT NULL,
	"failed" integer NOT NULL,
	"dropped" integer NOT NULL,
	"dead" integer NOT NULL,
	"attempt" integer NOT NULL,
	"retries" integer NOT NULL,
	"first_attempt_at" timestamp (3) with time zone,
	"reason" text,
	"updated_at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "delivery_chunks_state" CHECK ("push"."delivery_chunks"."state" in ('PENDING', 'SENDING', 'HELD', 'DONE', 'DEAD')),
	CONSTRAINT "delivery_chunks_sum" CHECK ("push"."delivery_chunks"."planned" = "push"."delivery_chunks"."sent" + "push"."delivery_chunks"."failed" + "push"."delivery_chunks"."dropped" + cardinality("push"."delivery_chunks"."device_ids"))
);
--> statement-breakpoint
CREATE TABLE "push"."devices" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"user_id" text COLLATE "C" NOT NULL,
	"provider" text NOT NULL,
	"token" text NOT NULL,
	"token_hash" "bytea" NOT NULL,
	"utc_offset" smallint NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL,
	"registered_at" timestamp (3) with time zone NOT NULL,
	"renewed_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "push"."history" (
	"user_id" text COLLATE "C" NOT NULL,
	"notification_id" uuid NOT NULL,
	"viewed" boolean NOT NULL,
	CONSTRAINT "history_pkey" PRIMARY KEY("user_id","notification_id")
);
--> statement-breakpoint
CREATE TABLE "push"."idempotency_keys" (
	"key_hash" "bytea" PRIMARY KEY NOT NULL,
	"request_hash" "bytea" NOT NULL,
	"notification_id" uuid NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "push"."notifications" (
	"id" uuid PRIMARY KEY NOT NULL,
	"title" text NOT NULL,
	"message" text NOT NULL,
	"image" text,
	"utc_offsets" smallint[],
	"user_ids" text[],
	"client_id" text,
	"state" text NOT NULL,
	"accepted_at" timestamp (3) with time zone NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL,
	"recorded_user" text COLLATE "C" DEFAULT '' NOT NULL,
	"recorded_device" bigint DEFAULT 0 NOT NULL,
	"recorded_at" timestamp (3) with time zone,
	"planned_through" bigint NOT NULL,
	"plan_until" bigint,
	"chunks" integer NOT NULL,
	"planned_at" timestamp (3) with time zone,
	"recipients" integer NOT NULL,
	"completed_at" timestamp (3) with time zone,
	"removal_stopped_at" timestamp (3) with time zone,
	CONSTRAINT "notifications_state" CHECK ("push"."notifications"."state" in ('PLANNING', 'SENDING', 'PAUSED', 'COMPLETED', 'CANCELLED')),
	CONSTRAINT "notifications_audience" CHECK (("push"."notifications"."utc_offsets" is null) <> ("push"."notifications"."user_ids" is null))
);
--> statement-breakpoint
CREATE TABLE "push"."outbox" (
	"position" bigserial PRIMARY KEY NOT NULL,
	"id" uuid NOT NULL,
	"type" text NOT NULL,
	"subject" text NOT NULL,
	"data" jsonb NOT NULL,
	"occurred_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "push"."provider_paces" (
	"provider" text PRIMARY KEY NOT NULL,
	"next_at" timestamp (3) with time zone NOT NULL,
	"share" real NOT NULL,
	"failures" integer NOT NULL,
	"paused_until" timestamp (3) with time zone,
	"reason" text
);
--> statement-breakpoint
CREATE TABLE "push"."test_runs" (
	"id" smallint PRIMARY KEY NOT NULL,
	"notification_id" uuid NOT NULL,
	"started_at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "test_runs_one" CHECK ("push"."test_runs"."id" = 1)
);
--> statement-breakpoint
CREATE INDEX "delivery_chunks_notification" ON "push"."delivery_chunks" USING btree ("notification_id");--> statement-breakpoint
CREATE INDEX "delivery_chunks_open" ON "push"."delivery_chunks" USING btree ("notification_id") WHERE "push"."delivery_chunks"."state" in ('PENDING', 'SENDING', 'HELD');--> statement-breakpoint
CREATE INDEX "delivery_chunks_dead" ON "push"."delivery_chunks" USING btree ("id") WHERE "push"."delivery_chunks"."state" = 'DEAD';--> statement-breakpoint
CREATE UNIQUE INDEX "devices_token_unique" ON "push"."devices" USING btree ("token_hash");--> statement-breakpoint
CREATE INDEX "devices_user" ON "push"."devices" USING btree ("user_id","id");--> statement-breakpoint
CREATE INDEX "devices_expiry" ON "push"."devices" USING btree ("expires_at");--> statement-breakpoint
CREATE INDEX "history_unread" ON "push"."history" USING btree ("user_id") WHERE not "push"."history"."viewed";--> statement-breakpoint
CREATE INDEX "history_age" ON "push"."history" USING btree ("notification_id" NULLS FIRST);--> statement-breakpoint
CREATE INDEX "idempotency_keys_expiry" ON "push"."idempotency_keys" USING btree ("expires_at");--> statement-breakpoint
CREATE INDEX "notifications_unfinished" ON "push"."notifications" USING btree ("id") WHERE "push"."notifications"."completed_at" is null;--> statement-breakpoint
-- The count of a user's history is quick where the pages are known to be visible to all, which vacuum sees to.
ALTER TABLE "push"."history" SET (autovacuum_vacuum_insert_scale_factor = 0.01, autovacuum_vacuum_scale_factor = 0.01);
