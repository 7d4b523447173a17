CREATE TABLE "auth"."database_pulse" (
	"only_row" integer PRIMARY KEY NOT NULL,
	"beaten_at" timestamp (3) with time zone NOT NULL,
	"paused_for" interval NOT NULL,
	CONSTRAINT "database_pulse_only_row" CHECK ("auth"."database_pulse"."only_row" = 1)
);
