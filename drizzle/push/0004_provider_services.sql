ALTER TABLE "push"."provider_paces" ADD COLUMN "service" text DEFAULT '' NOT NULL;--> statement-breakpoint
ALTER TABLE "push"."provider_paces" ADD COLUMN "cause" text;--> statement-breakpoint
ALTER TABLE "push"."provider_paces" ADD COLUMN "since" timestamp (3) with time zone DEFAULT now() NOT NULL;--> statement-breakpoint
UPDATE "push"."provider_paces" SET "cause" = 'unavailable' WHERE "failures" > 0;--> statement-breakpoint
ALTER TABLE "push"."provider_paces" DROP CONSTRAINT "provider_paces_pkey";--> statement-breakpoint
ALTER TABLE "push"."provider_paces" ADD CONSTRAINT "provider_paces_pkey" PRIMARY KEY("provider","service");--> statement-breakpoint
ALTER TABLE "push"."provider_paces" ADD CONSTRAINT "provider_paces_cause" CHECK ("push"."provider_paces"."cause" in ('unavailable', 'refused', 'foreign'));
