CREATE TABLE "auth"."broker_streams" (
	"stream_name" text PRIMARY KEY NOT NULL,
	"created" text NOT NULL
);
--> statement-breakpoint
CREATE TABLE "auth"."kept_events" (
	"position" bigint PRIMARY KEY NOT NULL,
	"id" uuid NOT NULL,
	"type" text NOT NULL,
	"subject" text NOT NULL,
	"data" jsonb NOT NULL,
	"occurred_at" timestamp (3) with time zone NOT NULL,
	"written_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"traceparent" text,
	"delivered_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
ALTER TABLE "auth"."outbox" ADD COLUMN "delivered_at" timestamp (3) with time zone;--> statement-breakpoint
CREATE INDEX "kept_events_delivered_at" ON "auth"."kept_events" USING btree ("delivered_at");