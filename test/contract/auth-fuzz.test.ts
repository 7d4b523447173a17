/** Requests to the auth API, made from the schemas of openapi/auth.yaml. */
import { randomUUID } from "node:crypto";
import fc from "fast-check";
import { beforeAll, beforeEach } from "vitest";
import { type AuthApi, authApi, basic, internal, mobileApp } from "../support/auth-api.ts";
import { withClients } from "../support/auth-fleet.ts";
import { type AuthServer, startAuthServer } from "../support/auth-server.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";
import { sessionsClient } from "./auth-deployments.ts";
import { fuzz } from "./fuzz.ts";

let server: AuthServer;
let api: AuthApi;
let known: { id: string; phone: string };
let token: string;
const cleanup = suiteCleanup();
beforeAll(async () => {
  server = await startAuthServer("PGlite", { env: withClients(sessionsClient) });
  cleanup.defer(() => server.stop());
  api = authApi(server.base);
});
beforeEach(async () => {
  known = await api.newIdentity();
  const { clientId, clientSecret } = sessionsClient;
  token = (await api.newPair(known.id, basic(clientId, clientSecret))).access_token;
});

/** Codes of countries whose numbers are of different lengths, and one that nobody has. */
const countries = fc.constantFrom("1", "7", "39", "43", "44", "49", "55", "81", "86", "290", "358", "999");
/** Phone numbers, many of which are possible, in several spellings: of random text hardly any is one. */
const phones = fc
  .tuple(countries, fc.stringMatching(/^[1-9]\d{3,17}$/), fc.nat(2))
  .map(
    ([country, national, spelling]) =>
      [
        `+${country}${national}`,
        `+${country} (${national.slice(0, 3)}) ${national.slice(3)}`,
        ` ${country} ${national}`,
      ][spelling] ?? "",
  );
const grants = fc.constantFrom("auth", "auth", "password", "refresh_token", "phone_otp", "phone_otp_token");
const scopes = fc.constantFrom("profile", "orders", "profile orders", "");
const lazily = (value: () => string) => fc.constant(undefined).map(value);

/** What may be refused although its form is right: what it says does not hold. */
const ofContent: Record<string, RegExp> = {
  "400":
    /is not valid JSON|must be a JSON object|must have no control|is not a possible phone number|is larger than 16384 bytes|harder to guess|"\/body\/id","message":"differs/,
  "404": /not_found/,
  "409": /identity_(id|phone|email)_taken/,
  "429": /slow_down/,
};
const ofOAuth =
  /"error":"(invalid_client|invalid_grant|invalid_scope|invalid_token|unauthorized_client|unsupported_grant_type)"|is required for grant_type|a second time|\/header\/DPoP is missing|beside login_hint/;

const formType = "application/x-www-form-urlencoded";

fuzz({
  document: "auth",
  call: (...request) => api.call(...request),
  credentials({ id, security }) {
    if (security.length === 0) return {};
    if (security.includes("UserToken")) return { as: `Bearer ${token}` };
    return { as: id === "generateTokens" ? mobileApp : internal };
  },
  sharp: {
    phone: fc.oneof(
      phones,
      lazily(() => known.phone),
    ),
    grant_type: grants,
    scope: scopes,
    id: lazily(() => known.id),
    auth_id: lazily(() => known.id),
    token: lazily(() => token),
  },
  known: () => ({ id: known.id, authorizationId: randomUUID() }),
  isOfContent: ({ id }, { status, text }) =>
    // It ends with the first request.
    (id === "endAllOwnAuthorizations" && status === 401) ||
    ofContent[status]?.test(text) === true ||
    (status === 400 && ofOAuth.test(text)),
  otherPaths: ["find-by-phone"],
  // In a form, empty counts as absent.
  isWhole: (body) => body["grant_type"] !== "",
  requiredField: ({ bodies }) => (bodies[formType]?.$ref?.endsWith("TokenRequest") ? "grant_type" : "token"),
});
