CREATE TABLE "auth"."read_leases" (
	"process_id" uuid PRIMARY KEY NOT NULL,
	"beat" bigint NOT NULL,
	"servers" text[] NOT NULL
);
