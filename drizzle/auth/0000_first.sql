CREATE SCHEMA "auth";
--> statement-breakpoint
CREATE TABLE "auth"."challenge_sessions" (
	"session_hash" "bytea" PRIMARY KEY NOT NULL,
	"phone" text NOT NULL,
	"client_id" text NOT NULL,
	"scopes" text[],
	"code_challenge" text NOT NULL,
	"key_thumbprint" text NOT NULL,
	"identity_id" text,
	"identity_generation" bigint NOT NULL,
	"is_sent" boolean NOT NULL,
	"otp_mac" "bytea" NOT NULL,
	"otp_expires_at" timestamp (3) with time zone NOT NULL,
	"sent_code_id" uuid NOT NULL,
	"resend_at" timestamp (3) with time zone NOT NULL,
	"codes_made" smallint NOT NULL,
	"wrong_tries" smallint DEFAULT 0 NOT NULL,
	"created_at" timestamp (3) with time zone NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL,
	"code_hash" "bytea",
	"code_expires_at" timestamp (3) with time zone,
	"authorization_id" uuid,
	"exchanged_at" timestamp (3) with time zone
);
--> statement-breakpoint
CREATE TABLE "auth"."open_breakers" (
	"prefix" text PRIMARY KEY NOT NULL,
	"opened_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "auth"."sent_codes" (
	"id" uuid PRIMARY KEY NOT NULL,
	"prefix" text NOT NULL,
	"sent_at" timestamp (3) with time zone NOT NULL,
	"is_used" boolean DEFAULT false NOT NULL
);
--> statement-breakpoint
CREATE TABLE "auth"."attempts" (
	"key" text PRIMARY KEY NOT NULL,
	"points" integer NOT NULL,
	"expire" timestamp (3) with time zone
);
--> statement-breakpoint
CREATE TABLE "auth"."authorizations" (
	"id" uuid PRIMARY KEY NOT NULL,
	"client_id" text NOT NULL,
	"identity_id" text NOT NULL,
	"grant_type" text NOT NULL,
	"scopes" text[] NOT NULL,
	"created_at" timestamp (3) with time zone NOT NULL,
	"client_generation" integer NOT NULL,
	"identity_generation" bigint NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL,
	"refreshed_at" timestamp (3) with time zone NOT NULL,
	"expiry_day" date NOT NULL,
	"revoked_at" timestamp (3) with time zone,
	"revocation_reason" text,
	"family_hash" "bytea" NOT NULL,
	"refresh_hash" "bytea" NOT NULL,
	"device_name" text,
	"metadata" jsonb,
	"key_thumbprint" "bytea",
	"replaced_hash" "bytea",
	"sealed_successor" "bytea",
	"replaced_at" timestamp (3) with time zone,
	"late_rotations" integer,
	"was_repeated_late" boolean,
	"organization_id" text,
	"organization_generation" integer,
	CONSTRAINT "authorizations_reason" CHECK (("auth"."authorizations"."revoked_at" is null) = ("auth"."authorizations"."revocation_reason" is null) and "auth"."authorizations"."revocation_reason" in ('CLIENT', 'REUSE', 'IDENTITY_DELETED', 'PASSWORD_CHANGED', 'CLIENT_DISABLED', 'USER', 'OPERATOR', 'ORGANIZATION'))
);
--> statement-breakpoint
CREATE TABLE "auth"."client_lists" (
	"only_row" integer PRIMARY KEY NOT NULL,
	"revision" integer,
	"content_hash" text NOT NULL,
	CONSTRAINT "client_lists_only_row" CHECK ("auth"."client_lists"."only_row" = 1)
);
--> statement-breakpoint
CREATE TABLE "auth"."clients" (
	"client_id" text PRIMARY KEY NOT NULL,
	"client_name" text NOT NULL,
	"secret_hashes" text[] NOT NULL,
	"authentication_methods" text[] NOT NULL,
	"grant_types" text[] NOT NULL,
	"scopes" text[] NOT NULL,
	"client_settings" jsonb NOT NULL,
	"token_settings" jsonb NOT NULL,
	"registered_at" timestamp (3) with time zone NOT NULL,
	"disabled_at" timestamp (3) with time zone,
	"generation" integer DEFAULT 0 NOT NULL,
	"ended_by" text DEFAULT '' NOT NULL
);
--> statement-breakpoint
CREATE TABLE "auth"."database_pulse" (
	"only_row" integer PRIMARY KEY NOT NULL,
	"beaten_at" timestamp (3) with time zone NOT NULL,
	"paused_for" interval NOT NULL,
	"period_began_at" timestamp (3) with time zone,
	"least_paused_for" interval DEFAULT '0' NOT NULL,
	"least_paused_for_before" interval DEFAULT '0' NOT NULL,
	CONSTRAINT "database_pulse_only_row" CHECK ("auth"."database_pulse"."only_row" = 1)
);
--> statement-breakpoint
CREATE TABLE "auth"."identities" (
	"id" text PRIMARY KEY NOT NULL,
	"phone" text NOT NULL,
	"email" text,
	"metadata" jsonb,
	"password_hash" text,
	"created_at" timestamp (3) with time zone NOT NULL,
	"updated_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "auth"."identity_endings" (
	"identity_id" text NOT NULL,
	"generation" bigserial NOT NULL,
	"reason" text NOT NULL,
	"ended_at" timestamp (3) with time zone NOT NULL,
	"request_id" text DEFAULT '' NOT NULL,
	"caller" text DEFAULT '' NOT NULL,
	"swept_at" timestamp (3) with time zone,
	CONSTRAINT "identity_endings_identity_id_generation_pk" PRIMARY KEY("identity_id","generation")
);
--> statement-breakpoint
CREATE TABLE "auth"."nonce_keys" (
	"only_row" integer PRIMARY KEY NOT NULL,
	"key" "bytea" NOT NULL,
	CONSTRAINT "nonce_keys_only_row" CHECK ("auth"."nonce_keys"."only_row" = 1)
);
--> statement-breakpoint
CREATE TABLE "auth"."organization_endings" (
	"organization_id" text PRIMARY KEY NOT NULL,
	"generation" integer NOT NULL,
	"ended_at" timestamp (3) with time zone NOT NULL,
	"request_id" text NOT NULL,
	"caller" text NOT NULL,
	"swept_at" timestamp (3) with time zone
);
--> statement-breakpoint
CREATE TABLE "auth"."outbox" (
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
CREATE TABLE "auth"."read_leases" (
	"process_id" uuid PRIMARY KEY NOT NULL,
	"beat" bigint NOT NULL,
	"servers" text[] NOT NULL
);
--> statement-breakpoint
CREATE TABLE "auth"."redeemed_otp_proofs" (
	"proof_hash" "bytea" PRIMARY KEY NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "auth"."relay_leases" (
	"part" smallint PRIMARY KEY NOT NULL,
	"lease" uuid NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "auth"."replaced_tokens" (
	"authorization_id" uuid PRIMARY KEY NOT NULL,
	"replaced_hash" "bytea" NOT NULL,
	"sealed_pair" "bytea" NOT NULL,
	"batch_id" uuid NOT NULL
);
--> statement-breakpoint
CREATE TABLE "auth"."revoked_access_tokens" (
	"jti" text PRIMARY KEY NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "auth"."rotation_batches" (
	"id" uuid PRIMARY KEY NOT NULL,
	"seen_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
-- What schema.ts cannot say, as Drizzle knows neither storage parameters nor partitions. The first migration runs it
-- once the tables are there, before their indexes.

-- Room in each page for another version of a row: one that is replaced soon stays where it is.
ALTER TABLE "auth"."replaced_tokens" SET (fillfactor = 50);
--> statement-breakpoint
-- Eight partitions, as the table may have a billion rows: vacuum, or an index that is built anew, takes one at a time.
ALTER TABLE "auth"."authorizations" RENAME TO "authorizations_whole";
--> statement-breakpoint
CREATE TABLE "auth"."authorizations" (LIKE "auth"."authorizations_whole" INCLUDING CONSTRAINTS) PARTITION BY HASH ("id");
--> statement-breakpoint
DROP TABLE "auth"."authorizations_whole";
--> statement-breakpoint
ALTER TABLE "auth"."authorizations" ADD PRIMARY KEY ("id");
--> statement-breakpoint
-- Room in each page for the next version of a row, as a refresh writes one.
DO $$ BEGIN
	FOR remainder IN 0..7 LOOP
		EXECUTE format('CREATE TABLE "auth"."authorizations_%s" PARTITION OF "auth"."authorizations" FOR VALUES WITH (MODULUS 8, REMAINDER %s) WITH (fillfactor = 85)', remainder, remainder);
	END LOOP;
END $$;
--> statement-breakpoint
CREATE UNIQUE INDEX "challenge_sessions_code" ON "auth"."challenge_sessions" USING btree ("code_hash") WHERE "auth"."challenge_sessions"."code_hash" is not null;--> statement-breakpoint
CREATE INDEX "challenge_sessions_expiry" ON "auth"."challenge_sessions" USING btree ("expires_at");--> statement-breakpoint
CREATE INDEX "sent_codes_prefix" ON "auth"."sent_codes" USING btree ("prefix","sent_at");--> statement-breakpoint
CREATE INDEX "sent_codes_sent" ON "auth"."sent_codes" USING btree ("sent_at");--> statement-breakpoint
CREATE INDEX "attempts_expire" ON "auth"."attempts" USING btree ("expire");--> statement-breakpoint
CREATE INDEX "authorizations_identity" ON "auth"."authorizations" USING btree ("identity_id","id","client_id") WHERE "auth"."authorizations"."revoked_at" is null;--> statement-breakpoint
CREATE INDEX "authorizations_identity_revoked" ON "auth"."authorizations" USING btree ("identity_id","id") WHERE "auth"."authorizations"."revoked_at" is not null;--> statement-breakpoint
CREATE INDEX "authorizations_client" ON "auth"."authorizations" USING btree ("client_id","client_generation") WHERE "auth"."authorizations"."revoked_at" is null;--> statement-breakpoint
CREATE INDEX "authorizations_organization" ON "auth"."authorizations" USING btree ("organization_id","organization_generation") WHERE "auth"."authorizations"."revoked_at" is null and "auth"."authorizations"."organization_id" is not null;--> statement-breakpoint
CREATE INDEX "authorizations_expiry_day" ON "auth"."authorizations" USING btree ("expiry_day");--> statement-breakpoint
CREATE UNIQUE INDEX "identities_phone_unique" ON "auth"."identities" USING btree ("phone");--> statement-breakpoint
CREATE UNIQUE INDEX "identities_email_unique" ON "auth"."identities" USING btree (lower("email" collate "C"));--> statement-breakpoint
CREATE INDEX "identity_endings_swept" ON "auth"."identity_endings" USING btree ("swept_at");--> statement-breakpoint
CREATE INDEX "organization_endings_unswept" ON "auth"."organization_endings" USING btree ("organization_id") WHERE "auth"."organization_endings"."swept_at" is null;--> statement-breakpoint
CREATE INDEX "outbox_parts" ON "auth"."outbox" USING btree ((hashtext("subject") & 7),"position");--> statement-breakpoint
CREATE INDEX "redeemed_otp_proofs_expiry" ON "auth"."redeemed_otp_proofs" USING btree ("expires_at");--> statement-breakpoint
CREATE INDEX "revoked_access_tokens_expiry" ON "auth"."revoked_access_tokens" USING btree ("expires_at");
