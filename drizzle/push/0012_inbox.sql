CREATE TABLE "push"."inbox" (
	"event_id" uuid PRIMARY KEY NOT NULL,
	"received_at" timestamp (3) with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE INDEX "inbox_received_at" ON "push"."inbox" USING btree ("received_at");