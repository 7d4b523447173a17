-- Written by hand, as drizzle-kit knows no partitions. The authorizations are copied into eight of them, so run it while
-- no process serves.
ALTER TABLE "auth"."clients" ADD COLUMN "secret_hashes" text[];--> statement-breakpoint
UPDATE "auth"."clients" SET "secret_hashes" = ARRAY["secret_hash"];--> statement-breakpoint
ALTER TABLE "auth"."clients" ALTER COLUMN "secret_hashes" SET NOT NULL;--> statement-breakpoint
ALTER TABLE "auth"."clients" DROP COLUMN "secret_hash";--> statement-breakpoint
ALTER TABLE "auth"."clients" ADD COLUMN "generation" integer DEFAULT 0 NOT NULL;--> statement-breakpoint
CREATE TABLE "auth"."client_lists" (
	"only_row" integer PRIMARY KEY NOT NULL,
	"revision" integer,
	"content_hash" text NOT NULL,
	CONSTRAINT "client_lists_only_row" CHECK ("auth"."client_lists"."only_row" = 1)
);
--> statement-breakpoint
CREATE TABLE "auth"."identity_endings" (
	"identity_id" text NOT NULL,
	"generation" bigserial NOT NULL,
	"reason" text NOT NULL,
	"ended_at" timestamp (3) with time zone NOT NULL,
	"swept_at" timestamp (3) with time zone,
	CONSTRAINT "identity_endings_identity_id_generation_pk" PRIMARY KEY("identity_id","generation")
);
--> statement-breakpoint
CREATE INDEX "identity_endings_swept" ON "auth"."identity_endings" USING btree ("swept_at");--> statement-breakpoint
-- Room in each page for another version of a row: one that is replaced soon stays where it is.
CREATE TABLE "auth"."replaced_tokens" (
	"authorization_id" uuid PRIMARY KEY NOT NULL,
	"replaced_hash" "bytea" NOT NULL,
	"sealed_pair" "bytea" NOT NULL,
	"batch_id" uuid NOT NULL
) WITH (fillfactor = 50);
--> statement-breakpoint
CREATE TABLE "auth"."rotation_batches" (
	"id" uuid PRIMARY KEY NOT NULL,
	"seen_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
ALTER TABLE "auth"."authorizations" RENAME TO "authorizations_before";--> statement-breakpoint
ALTER INDEX "auth"."authorizations_pkey" RENAME TO "authorizations_before_pkey";--> statement-breakpoint
DROP INDEX "auth"."authorizations_identity";--> statement-breakpoint
DROP INDEX "auth"."authorizations_client";--> statement-breakpoint
DROP INDEX "auth"."authorizations_expiry";--> statement-breakpoint
DROP INDEX "auth"."authorizations_superseded";--> statement-breakpoint
CREATE TABLE "auth"."authorizations" (
	"id" uuid NOT NULL,
	"client_id" text NOT NULL,
	"identity_id" text NOT NULL,
	"grant_type" text NOT NULL,
	"scopes" text[] NOT NULL,
	"created_at" timestamp (3) with time zone NOT NULL,
	"client_generation" integer NOT NULL,
	"identity_generation" bigint NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL,
	"access_expires_at" timestamp (3) with time zone NOT NULL,
	"expiry_day" date NOT NULL,
	"revoked_at" timestamp (3) with time zone,
	"revocation_reason" text,
	"family_hash" "bytea" NOT NULL,
	"refresh_hash" "bytea" NOT NULL,
	CONSTRAINT "authorizations_reason" CHECK (("auth"."authorizations"."revoked_at" is null) = ("auth"."authorizations"."revocation_reason" is null) and "auth"."authorizations"."revocation_reason" in ('CLIENT', 'REUSE', 'IDENTITY_DELETED', 'PASSWORD_CHANGED', 'CLIENT_DISABLED'))
) PARTITION BY HASH ("id");
--> statement-breakpoint
-- Room in each page for the next version of a row, as a refresh writes one.
DO $$ BEGIN
	FOR remainder IN 0..7 LOOP
		EXECUTE format('CREATE TABLE "auth"."authorizations_%s" PARTITION OF "auth"."authorizations" FOR VALUES WITH (MODULUS 8, REMAINDER %s) WITH (fillfactor = 85)', remainder, remainder);
	END LOOP;
END $$;
--> statement-breakpoint
INSERT INTO "auth"."authorizations"
SELECT "id", "client_id", "identity_id", "grant_type", "scopes", "created_at", 0, 0, "expires_at", "access_expires_at",
	(greatest("expires_at", "access_expires_at") AT TIME ZONE 'UTC')::date,
	"revoked_at", "revocation_reason", "family_hash", "refresh_hash"
FROM "auth"."authorizations_before";
--> statement-breakpoint
-- The window of a token that was replaced before begins anew with the migration. base64url becomes bytes.
INSERT INTO "auth"."replaced_tokens"
SELECT "id",
	decode(rpad(translate("superseded" -> 0 ->> 'hash', '-_', '+/'), 44, '='), 'base64'),
	decode(rpad(translate("superseded" -> 0 ->> 'sealed', '-_', '+/'), (length("superseded" -> 0 ->> 'sealed') + 3) / 4 * 4, '='), 'base64'),
	'00000000-0000-0000-0000-000000000000'
FROM "auth"."authorizations_before"
WHERE "superseded" <> '[]' AND "revoked_at" IS NULL;
--> statement-breakpoint
INSERT INTO "auth"."rotation_batches"
SELECT '00000000-0000-0000-0000-000000000000', clock_timestamp() WHERE EXISTS (SELECT FROM "auth"."replaced_tokens");
--> statement-breakpoint
DROP TABLE "auth"."authorizations_before";--> statement-breakpoint
ALTER TABLE "auth"."authorizations" ADD CONSTRAINT "authorizations_pkey" PRIMARY KEY ("id");--> statement-breakpoint
CREATE INDEX "authorizations_identity" ON "auth"."authorizations" USING btree ("identity_id") WHERE "auth"."authorizations"."revoked_at" is null;--> statement-breakpoint
CREATE INDEX "authorizations_client" ON "auth"."authorizations" USING btree ("client_id","client_generation") WHERE "auth"."authorizations"."revoked_at" is null;--> statement-breakpoint
CREATE INDEX "authorizations_expiry_day" ON "auth"."authorizations" USING btree ("expiry_day");
