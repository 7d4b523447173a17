-- The index of the next migration, partition by partition, as PostgreSQL builds none of a partitioned table concurrently.
CREATE INDEX CONCURRENTLY "authorizations_0_identity_client" ON "auth"."authorizations_0" USING btree ("identity_id","client_id") WHERE "revoked_at" is null;--> statement-breakpoint
CREATE INDEX CONCURRENTLY "authorizations_1_identity_client" ON "auth"."authorizations_1" USING btree ("identity_id","client_id") WHERE "revoked_at" is null;--> statement-breakpoint
CREATE INDEX CONCURRENTLY "authorizations_2_identity_client" ON "auth"."authorizations_2" USING btree ("identity_id","client_id") WHERE "revoked_at" is null;--> statement-breakpoint
CREATE INDEX CONCURRENTLY "authorizations_3_identity_client" ON "auth"."authorizations_3" USING btree ("identity_id","client_id") WHERE "revoked_at" is null;--> statement-breakpoint
CREATE INDEX CONCURRENTLY "authorizations_4_identity_client" ON "auth"."authorizations_4" USING btree ("identity_id","client_id") WHERE "revoked_at" is null;--> statement-breakpoint
CREATE INDEX CONCURRENTLY "authorizations_5_identity_client" ON "auth"."authorizations_5" USING btree ("identity_id","client_id") WHERE "revoked_at" is null;--> statement-breakpoint
CREATE INDEX CONCURRENTLY "authorizations_6_identity_client" ON "auth"."authorizations_6" USING btree ("identity_id","client_id") WHERE "revoked_at" is null;--> statement-breakpoint
CREATE INDEX CONCURRENTLY "authorizations_7_identity_client" ON "auth"."authorizations_7" USING btree ("identity_id","client_id") WHERE "revoked_at" is null;
