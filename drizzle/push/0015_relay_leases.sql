CREATE TABLE "push"."relay_leases" (
	"part" smallint PRIMARY KEY NOT NULL,
	"lease" uuid NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE INDEX "outbox_parts" ON "push"."outbox" USING btree ((hashtext("subject") & 7),"position");