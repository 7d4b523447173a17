CREATE SCHEMA "auth";
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
	"expires_at" timestamp (3) with time zone NOT NULL,
	"access_expires_at" timestamp (3) with time zone NOT NULL,
	"revoked_at" timestamp (3) with time zone,
	"revocation_reason" text,
	"family_hash" "bytea" NOT NULL,
	"refresh_hash" "bytea" NOT NULL,
	"superseded" jsonb NOT NULL,
	CONSTRAINT "authorizations_reason" CHECK (("auth"."authorizations"."revoked_at" is null) = ("auth"."authorizations"."revocation_reason" is null) and "auth"."authorizations"."revocation_reason" in ('CLIENT', 'REUSE', 'IDENTITY_DELETED', 'PASSWORD_CHANGED', 'CLIENT_DISABLED'))
);
--> statement-breakpoint
CREATE TABLE "auth"."clients" (
	"client_id" text PRIMARY KEY NOT NULL,
	"client_name" text NOT NULL,
	"secret_hash" text NOT NULL,
	"authentication_methods" text[] NOT NULL,
	"grant_types" text[] NOT NULL,
	"scopes" text[] NOT NULL,
	"client_settings" jsonb NOT NULL,
	"token_settings" jsonb NOT NULL,
	"registered_at" timestamp (3) with time zone NOT NULL,
	"disabled_at" timestamp (3) with time zone
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
CREATE TABLE "auth"."outbox" (
	"position" bigserial PRIMARY KEY NOT NULL,
	"id" uuid NOT NULL,
	"type" text NOT NULL,
	"subject" text NOT NULL,
	"data" jsonb NOT NULL,
	"occurred_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "auth"."redeemed_otp_proofs" (
	"proof_hash" "bytea" PRIMARY KEY NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "auth"."revoked_access_tokens" (
	"jti" text PRIMARY KEY NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE INDEX "attempts_expire" ON "auth"."attempts" USING btree ("expire");--> statement-breakpoint
CREATE INDEX "authorizations_identity" ON "auth"."authorizations" USING btree ("identity_id");--> statement-breakpoint
CREATE INDEX "authorizations_client" ON "auth"."authorizations" USING btree ("client_id");--> statement-breakpoint
CREATE INDEX "authorizations_expiry" ON "auth"."authorizations" USING btree ("expires_at");--> statement-breakpoint
CREATE INDEX "authorizations_superseded" ON "auth"."authorizations" USING btree ("id") WHERE "auth"."authorizations"."superseded" <> '[]';--> statement-breakpoint
CREATE UNIQUE INDEX "identities_phone_unique" ON "auth"."identities" USING btree ("phone");--> statement-breakpoint
CREATE UNIQUE INDEX "identities_email_unique" ON "auth"."identities" USING btree (lower("email"));--> statement-breakpoint
CREATE INDEX "redeemed_otp_proofs_expiry" ON "auth"."redeemed_otp_proofs" USING btree ("expires_at");--> statement-breakpoint
CREATE INDEX "revoked_access_tokens_expiry" ON "auth"."revoked_access_tokens" USING btree ("expires_at");