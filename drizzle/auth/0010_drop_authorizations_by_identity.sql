-- The version before finds authorizations of an identity by the other index, which begins with the same column.
DROP INDEX "auth"."authorizations_identity";
