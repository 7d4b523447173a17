-- Takes the indexes of the partitions, and builds none.
CREATE INDEX "authorizations_identity_client" ON "auth"."authorizations" USING btree ("identity_id","client_id") WHERE "auth"."authorizations"."revoked_at" is null;
