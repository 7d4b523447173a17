ALTER TABLE "push"."kept_events" ADD COLUMN "tracestate" text;--> statement-breakpoint
ALTER TABLE "push"."outbox" ADD COLUMN "tracestate" text;