CREATE SCHEMA "push";
--> statement-breakpoint
CREATE SEQUENCE "push"."history_user_numbers" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1;--> statement-breakpoint
CREATE TABLE "push"."history_entries" (
	"user_number" bigint NOT NULL,
	"notification_id" uuid NOT NULL,
	"variables" jsonb,
	CONSTRAINT "history_entries_pkey" PRIMARY KEY("user_number","notification_id")
);
--> statement-breakpoint
CREATE TABLE "push"."message_outcomes" (
	"notification_id" uuid NOT NULL,
	"user_id" text COLLATE "C" NOT NULL,
	"device_id" bigint NOT NULL,
	"provider" text NOT NULL,
	"outcome" text NOT NULL,
	"reason" text,
	"settled_at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "message_outcomes_pkey" PRIMARY KEY("notification_id","user_id","device_id"),
	CONSTRAINT "message_outcomes_outcome" CHECK ("push"."message_outcomes"."outcome" in ('SENT', 'FAILED', 'DROPPED', 'DEAD_LETTERED'))
);
--> statement-breakpoint
CREATE TABLE "push"."notification_users" (
	"notification_id" uuid NOT NULL,
	"position" integer NOT NULL,
	"user_id" text COLLATE "C" NOT NULL,
	"is_excluded" boolean DEFAULT false NOT NULL,
	"variables" jsonb,
	CONSTRAINT "notification_users_pkey" PRIMARY KEY("notification_id","position")
);
--> statement-breakpoint
CREATE TABLE "push"."send_rates" (
	"notification_id" uuid PRIMARY KEY NOT NULL,
	"next_at" timestamp (3) with time zone NOT NULL,
	"queue_ends_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "push"."dead_reports" (
	"device_id" bigint PRIMARY KEY NOT NULL,
	"provider" text NOT NULL,
	"user_id" text COLLATE "C" NOT NULL,
	"as_of" timestamp (3) with time zone NOT NULL,
	"reported_at" timestamp (3) with time zone NOT NULL,
	"state" text NOT NULL,
	CONSTRAINT "dead_reports_state" CHECK ("push"."dead_reports"."state" in ('WAITING', 'CONFIRMED', 'REMOVED'))
);
--> statement-breakpoint
CREATE TABLE "push"."provider_responses" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"provider" text NOT NULL,
	"responded_at" timestamp (3) with time zone NOT NULL,
	"user_count" integer NOT NULL,
	"dead_user_count" integer NOT NULL,
	"alive_hashes" integer[] DEFAULT '{}' NOT NULL,
	"dead_hashes" integer[] DEFAULT '{}' NOT NULL
);
--> statement-breakpoint
CREATE TABLE "push"."delivery_chunks" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"notification_id" uuid NOT NULL,
	"provider" text NOT NULL,
	"utc_offset" smallint NOT NULL,
	"state" text DEFAULT 'READY' NOT NULL,
	"turn" bigint NOT NULL,
	"is_retry" boolean DEFAULT false NOT NULL,
	"due_at" timestamp (3) with time zone,
	"awaits" text,
	"process_id" uuid,
	"attempt" uuid,
	"stored" integer DEFAULT 0 NOT NULL,
	"takes" integer DEFAULT 0 NOT NULL,
	"device_ids" bigint[] NOT NULL,
	"planned" integer NOT NULL,
	"sent" integer DEFAULT 0 NOT NULL,
	"failed" integer DEFAULT 0 NOT NULL,
	"dropped" integer DEFAULT 0 NOT NULL,
	"failures" jsonb DEFAULT '{}'::jsonb NOT NULL,
	"retries" integer DEFAULT 0 NOT NULL,
	"first_attempt_at" timestamp (3) with time zone,
	"reason" text,
	"updated_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "delivery_chunks_state" CHECK ("push"."delivery_chunks"."state" in ('READY', 'WAITING', 'PARKED', 'TAKEN', 'DONE', 'DEAD')),
	CONSTRAINT "delivery_chunks_holder" CHECK (("push"."delivery_chunks"."state" = 'TAKEN') = ("push"."delivery_chunks"."process_id" is not null)),
	CONSTRAINT "delivery_chunks_due" CHECK (("push"."delivery_chunks"."state" = 'WAITING') = ("push"."delivery_chunks"."due_at" is not null)),
	CONSTRAINT "delivery_chunks_awaits" CHECK ("push"."delivery_chunks"."awaits" in ('SERVICE', 'RESPONSE')),
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
	"time_zone" text COLLATE "C",
	"expires_at" timestamp (3) with time zone NOT NULL,
	"registered_at" timestamp (3) with time zone NOT NULL,
	"renewed_at" timestamp (3) with time zone NOT NULL,
	"authorization_id" text,
	"language" text COLLATE "C",
	"platform" text,
	CONSTRAINT "devices_platform" CHECK ("push"."devices"."platform" in ('ios', 'android', 'web'))
);
--> statement-breakpoint
CREATE TABLE "push"."history_blocks" (
	"user_block" integer NOT NULL,
	"notification_id" uuid NOT NULL,
	"recipient_bits" bit(512) NOT NULL,
	CONSTRAINT "history_blocks_pkey" PRIMARY KEY("user_block","notification_id")
);
--> statement-breakpoint
CREATE TABLE "push"."history_users" (
	"user_id" text COLLATE "C" PRIMARY KEY NOT NULL,
	"user_number" bigint NOT NULL
);
--> statement-breakpoint
CREATE TABLE "push"."history_views" (
	"user_number" bigint NOT NULL,
	"notification_id" uuid NOT NULL,
	"viewed_at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "history_views_pkey" PRIMARY KEY("user_number","notification_id")
);
--> statement-breakpoint
CREATE TABLE "push"."idempotency_keys" (
	"key_hash" "bytea" PRIMARY KEY NOT NULL,
	"request_hash" "bytea" NOT NULL,
	"notification_id" uuid NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "push"."inbox" (
	"event_id" uuid PRIMARY KEY NOT NULL,
	"received_at" timestamp (3) with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "push"."notifications" (
	"id" uuid PRIMARY KEY NOT NULL,
	"title" text NOT NULL,
	"message" text NOT NULL,
	"image" text,
	"content" jsonb,
	"audience_kind" text DEFAULT 'OFFSETS' NOT NULL,
	"utc_offsets" smallint[],
	"audience" jsonb,
	"last_device_id" bigint,
	"priority" text DEFAULT 'high' NOT NULL,
	"collapse_id" text,
	"max_per_second" integer,
	"history" boolean DEFAULT true NOT NULL,
	"client_id" text,
	"state" text NOT NULL,
	"accepted_at" timestamp (3) with time zone NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL,
	"chunks" integer DEFAULT 0 NOT NULL,
	"planned_at" timestamp (3) with time zone,
	"recipients" integer DEFAULT 0 NOT NULL,
	"totals" jsonb DEFAULT '[]'::jsonb NOT NULL,
	"traceparent" text,
	"tracestate" text,
	"completed_at" timestamp (3) with time zone,
	"recalled_at" timestamp (3) with time zone,
	"removal_stopped_at" timestamp (3) with time zone,
	"held_at" timestamp (3) with time zone,
	CONSTRAINT "notifications_state" CHECK ("push"."notifications"."state" in ('PLANNING', 'SENDING', 'PAUSED', 'COMPLETED', 'CANCELLED')),
	CONSTRAINT "notifications_kind" CHECK ("push"."notifications"."audience_kind" in ('OFFSETS', 'USERS', 'FILTERS', 'EVERYBODY', 'TEST')),
	CONSTRAINT "notifications_offsets" CHECK (("push"."notifications"."utc_offsets" is not null) = ("push"."notifications"."audience_kind" = 'OFFSETS')),
	CONSTRAINT "notifications_audience" CHECK (("push"."notifications"."audience" is null) = ("push"."notifications"."audience_kind" = 'OFFSETS')),
	CONSTRAINT "notifications_priority" CHECK ("push"."notifications"."priority" in ('high', 'normal'))
);
--> statement-breakpoint
CREATE TABLE "push"."outbox" (
	"position" bigserial PRIMARY KEY NOT NULL,
	"id" uuid NOT NULL,
	"type" text NOT NULL,
	"subject" text NOT NULL,
	"data" jsonb NOT NULL,
	"occurred_at" timestamp (3) with time zone NOT NULL,
	"written_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"traceparent" text,
	"tracestate" text
);
--> statement-breakpoint
CREATE TABLE "push"."plan_ranges" (
	"notification_id" uuid NOT NULL,
	"axis" text DEFAULT 'DEVICES' NOT NULL,
	"after_id" bigint NOT NULL,
	"through_id" bigint,
	"range_number" integer NOT NULL,
	"tries" integer DEFAULT 0 NOT NULL,
	"due_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "plan_ranges_pkey" PRIMARY KEY("notification_id","axis","after_id"),
	CONSTRAINT "plan_ranges_axis" CHECK ("push"."plan_ranges"."axis" in ('DEVICES', 'USERS'))
);
--> statement-breakpoint
CREATE TABLE "push"."processes" (
	"id" uuid PRIMARY KEY NOT NULL,
	"beat" bigint DEFAULT 0 NOT NULL,
	"unusable" text[] DEFAULT '{}' NOT NULL
);
--> statement-breakpoint
CREATE TABLE "push"."provider_states" (
	"provider" text NOT NULL,
	"service" text DEFAULT '' NOT NULL,
	"next_at" timestamp (3) with time zone NOT NULL,
	"share" real NOT NULL,
	"failures" integer NOT NULL,
	"paused_until" timestamp (3) with time zone,
	"cause" text,
	"reason" text,
	"removals_held_at" timestamp (3) with time zone,
	"since" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "provider_states_pkey" PRIMARY KEY("provider","service"),
	CONSTRAINT "provider_states_cause" CHECK ("push"."provider_states"."cause" in ('unavailable', 'refused', 'foreign'))
);
--> statement-breakpoint
CREATE TABLE "push"."relay_leases" (
	"part" smallint PRIMARY KEY NOT NULL,
	"lease" uuid NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "push"."replays" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"after_id" bigint DEFAULT 0 NOT NULL,
	"through_id" bigint NOT NULL,
	"notification_id" uuid,
	"provider" text
);
--> statement-breakpoint
CREATE TABLE "push"."test_runs" (
	"id" smallint PRIMARY KEY NOT NULL,
	"notification_id" uuid NOT NULL,
	"started_at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "test_runs_one" CHECK ("push"."test_runs"."id" = 1)
);
--> statement-breakpoint
ALTER TABLE "push"."delivery_chunks" ADD CONSTRAINT "delivery_chunks_process_id_processes_id_fk" FOREIGN KEY ("process_id") REFERENCES "push"."processes"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
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
--> statement-breakpoint
CREATE INDEX "history_entries_age" ON "push"."history_entries" USING btree ("notification_id" NULLS FIRST,"user_number");--> statement-breakpoint
CREATE INDEX "message_outcomes_user" ON "push"."message_outcomes" USING btree ("user_id");--> statement-breakpoint
CREATE INDEX "notification_users_user" ON "push"."notification_users" USING btree ("user_id");--> statement-breakpoint
CREATE INDEX "dead_reports_provider" ON "push"."dead_reports" USING btree ("provider","reported_at");--> statement-breakpoint
CREATE INDEX "dead_reports_user" ON "push"."dead_reports" USING btree ("user_id");--> statement-breakpoint
CREATE INDEX "provider_responses_newest" ON "push"."provider_responses" USING btree ("provider","id");--> statement-breakpoint
CREATE INDEX "delivery_chunks_ready" ON "push"."delivery_chunks" USING btree ("provider","is_retry","turn","id") WHERE "push"."delivery_chunks"."state" = 'READY';--> statement-breakpoint
CREATE INDEX "delivery_chunks_oldest" ON "push"."delivery_chunks" USING btree ("provider","id") WHERE "push"."delivery_chunks"."state" = 'READY' and not "push"."delivery_chunks"."is_retry";--> statement-breakpoint
CREATE INDEX "delivery_chunks_waiting" ON "push"."delivery_chunks" USING btree ("due_at") WHERE "push"."delivery_chunks"."state" = 'WAITING';--> statement-breakpoint
CREATE INDEX "delivery_chunks_awaiting" ON "push"."delivery_chunks" USING btree ("provider","awaits") WHERE "push"."delivery_chunks"."state" = 'WAITING' and "push"."delivery_chunks"."awaits" is not null;--> statement-breakpoint
CREATE INDEX "delivery_chunks_process" ON "push"."delivery_chunks" USING btree ("process_id") WHERE "push"."delivery_chunks"."process_id" is not null;--> statement-breakpoint
CREATE INDEX "delivery_chunks_notification" ON "push"."delivery_chunks" USING btree ("notification_id","state");--> statement-breakpoint
CREATE INDEX "delivery_chunks_dead" ON "push"."delivery_chunks" USING btree ("id") WHERE "push"."delivery_chunks"."state" = 'DEAD';--> statement-breakpoint
CREATE UNIQUE INDEX "devices_token_unique" ON "push"."devices" USING btree ("token_hash");--> statement-breakpoint
CREATE INDEX "devices_user" ON "push"."devices" USING btree ("user_id","id");--> statement-breakpoint
CREATE INDEX "devices_expiry" ON "push"."devices" USING btree ("expires_at");--> statement-breakpoint
CREATE INDEX "devices_zone" ON "push"."devices" USING btree (coalesce("time_zone", "utc_offset"::text),"id");--> statement-breakpoint
CREATE INDEX "history_blocks_age" ON "push"."history_blocks" USING btree ("notification_id" NULLS FIRST);--> statement-breakpoint
CREATE UNIQUE INDEX "history_users_number" ON "push"."history_users" USING btree ("user_number");--> statement-breakpoint
CREATE INDEX "history_views_age" ON "push"."history_views" USING btree ("notification_id" NULLS FIRST);--> statement-breakpoint
CREATE INDEX "idempotency_keys_expiry" ON "push"."idempotency_keys" USING btree ("expires_at");--> statement-breakpoint
CREATE INDEX "inbox_received_at" ON "push"."inbox" USING btree ("received_at");--> statement-breakpoint
CREATE INDEX "notifications_unfinished" ON "push"."notifications" USING btree ("id") WHERE "push"."notifications"."completed_at" is null;--> statement-breakpoint
CREATE INDEX "notifications_recalled" ON "push"."notifications" USING btree ("id") WHERE "push"."notifications"."recalled_at" is not null;--> statement-breakpoint
CREATE INDEX "outbox_parts" ON "push"."outbox" USING btree ((hashtext("subject") & 7),"position");--> statement-breakpoint
CREATE INDEX "plan_ranges_due" ON "push"."plan_ranges" USING btree (least("range_number", 1),"due_at");
