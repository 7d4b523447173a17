-- A device is known by what its provider means, in whatever spelling its token was saved: an APNs token by its digits, a
-- browser's subscription by its endpoint. Of several rows of one device, that of its last registration stays.
DELETE FROM "push"."devices" WHERE "id" IN (
	SELECT "id" FROM (
		SELECT "id", row_number() OVER (PARTITION BY "provider", CASE "provider"
			WHEN 'apns' THEN lower("token")
			ELSE regexp_replace("token"::json ->> 'endpoint', '^(https://[^/?#]+):443(?=[/?#]|$)', '\1')
		END ORDER BY "renewed_at" DESC, "id" DESC) AS "place"
		FROM "push"."devices" WHERE "provider" IN ('apns', 'webpush')
	) AS "known" WHERE "place" > 1
);--> statement-breakpoint
UPDATE "push"."devices" SET "token" = lower("token"), "token_hash" = sha256(convert_to(lower("token"), 'UTF8'))
WHERE "provider" = 'apns' AND "token" <> lower("token");--> statement-breakpoint
UPDATE "push"."devices" SET "token_hash" = sha256(convert_to(
	regexp_replace("token"::json ->> 'endpoint', '^(https://[^/?#]+):443(?=[/?#]|$)', '\1'), 'UTF8'))
WHERE "provider" = 'webpush';
