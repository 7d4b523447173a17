ALTER TABLE "auth"."kept_events" ADD COLUMN "tracestate" text;--> statement-breakpoint
ALTER TABLE "auth"."outbox" ADD COLUMN "tracestate" text;