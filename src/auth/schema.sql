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
