-- A device is known by what its provider means, in whatever spelling its token was saved: an APNs token by its digits, a
-- browser's subscription by its endpoint. Of several rows of one device, that of its last registration stays. A row
-- whose identity cannot be told goes; its app registers the device again at its next start.
CREATE FUNCTION "push"."identity_of"("provider" text, "token" text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	"endpoint" text;
BEGIN
	IF "provider" = 'apns' THEN RETURN lower("token"); END IF;
	IF "provider" <> 'webpush' THEN RETURN "token"; END IF;
	"endpoint" := regexp_replace("token"::json ->> 'endpoint', '^(https://[^/?#]+):443(?=[/?#]|$)', '\1');
	-- In other spellings a URL is not written as the service writes it.
	IF "endpoint" !~ '^https?://[a-z0-9.-]+(:[0-9]+)?/[!#-;=?-Z_a-z|~\[\]]*$' OR "endpoint" ~* '/(\.|%2e){1,2}(/|\?|$)' THEN
		RETURN NULL;
	END IF;
	RETURN "endpoint";
EXCEPTION WHEN others THEN
	RETURN NULL;
END
$$;--> statement-breakpoint
DELETE FROM "push"."devices" WHERE "id" IN (
	SELECT "id" FROM (
		SELECT "id", "identity", row_number() OVER (PARTITION BY "identity" ORDER BY "renewed_at" DESC, "id" DESC) AS "place"
		FROM (
			SELECT "id", "renewed_at", "push"."identity_of"("provider", "token") AS "identity" FROM "push"."devices"
		) AS "known"
	) AS "placed" WHERE "identity" IS NULL OR "place" > 1
);--> statement-breakpoint
UPDATE "push"."devices" SET "token_hash" = sha256(convert_to("push"."identity_of"("provider", "token"), 'UTF8')),
	"token" = CASE "provider" WHEN 'apns' THEN lower("token") ELSE "token" END
WHERE "provider" IN ('apns', 'webpush');--> statement-breakpoint
DROP FUNCTION "push"."identity_of"(text, text);
