ALTER TABLE "push"."delivery_chunks" DROP CONSTRAINT "delivery_chunks_state";--> statement-breakpoint
DROP INDEX "push"."delivery_chunks_open";--> statement-breakpoint
ALTER TABLE "push"."delivery_chunks" ADD COLUMN "job_id" uuid;--> statement-breakpoint
ALTER TABLE "push"."delivery_chunks" ADD COLUMN "job_try" integer;--> statement-breakpoint
-- No job of before is named by its chunk: all chunks that are still to be sent are parked, and the completion sweep has
-- them follow their notifications, which gives them jobs anew.
UPDATE "push"."delivery_chunks" SET "state" = 'PENDING', "attempt" = "attempt" + 1 WHERE "state" in ('HELD', 'SENDING');--> statement-breakpoint
CREATE INDEX "delivery_chunks_parked" ON "push"."delivery_chunks" USING btree ("notification_id","id") WHERE "push"."delivery_chunks"."state" = 'PENDING' and "push"."delivery_chunks"."job_id" is null;--> statement-breakpoint
CREATE INDEX "delivery_chunks_open" ON "push"."delivery_chunks" USING btree ("notification_id") WHERE "push"."delivery_chunks"."state" in ('PENDING', 'SENDING');--> statement-breakpoint
ALTER TABLE "push"."delivery_chunks" ADD CONSTRAINT "delivery_chunks_job" CHECK ("push"."delivery_chunks"."job_id" is null or "push"."delivery_chunks"."state" in ('PENDING', 'SENDING'));--> statement-breakpoint
ALTER TABLE "push"."delivery_chunks" ADD CONSTRAINT "delivery_chunks_state" CHECK ("push"."delivery_chunks"."state" in ('PENDING', 'SENDING', 'DONE', 'DEAD'));