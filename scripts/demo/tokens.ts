/** The second part of the demo: the life of a token pair, until it is revoked and the user is deleted. */
import { randomBytes } from "node:crypto";
import { createLocalJWKSet, jwtVerify } from "jose";
import type { components } from "../../gen/openapi/auth.ts";
import { basic, form, protocols } from "./calls.ts";
import { bodyOf, failureOf, Mismatch, statusIs } from "./mismatch.ts";
import type { Check, Stage, TokenPair } from "./stage.ts";

type Introspection = components["schemas"]["Introspection"];
/** The introspection of an active token, with all members. */
type ActiveToken = Required<Introspection>;

/** Introspects the token over every protocol. @returns the response */
export async function introspect(stage: Stage, { access_token }: TokenPair): Promise<ActiveToken> {
  const { calls, user, credentials, step } = stage;

  const active = await step("Is the access token active? Ask over HTTP", async (check) => {
    const result = bodyOf(200, await introspectOverHttp(stage, access_token));
    if (!isActive(result)) throw new Mismatch("an active token", JSON.stringify(result));
    check("it is active, and the user's", [result.sub, result.userInfo], [user.id, { userId: user.id }]);
    return result;
  });

  const expected = asMessage(active);
  for (const protocol of protocols) {
    await step(`Ask over ${protocol}`, async (check) => {
      const result = await calls.introspectOver(protocol, access_token, credentials.api);
      check("the same response, with the times as strings", result, expected);
    });
  }
  return active;
}

/** Verifies the token locally with the key set, as a resource server can. */
export async function verifyLocally(
  { calls, step }: Stage,
  token: string,
  active: ActiveToken,
): Promise<void> {
  await step("Verify the token locally, with the public key set", async (check) => {
    const keySet = bodyOf(200, await calls.auth.GET("/v1/jwks"));
    const options = {
      issuer: active.iss,
      audience: "storefront",
      typ: "at+jwt",
      algorithms: ["RS256"],
      clockTolerance: 60,
    };
    const verified = await jwtVerify(token, createLocalJWKSet(keySet), options).catch((thrown: unknown) => {
      throw new Mismatch("a token that a key of the set verifies", String(thrown), { cause: thrown });
    });
    const { sub, client_id, jti, exp } = verified.payload;
    check(
      "signature, issuer, audience and type are right; the claims are those of the introspection",
      { sub, client_id, jti, exp },
      { sub: active.sub, client_id: active.clientId, jti: active.jti, exp: active.exp },
    );
  });
}

export async function refresh(stage: Stage, old: TokenPair): Promise<TokenPair> {
  const next = await stage.step("Exchange the refresh token for the next pair", async (check) => {
    const pair = bodyOf(200, await exchange(stage, old.refresh_token));
    const isNew = pair.access_token !== old.access_token && pair.refresh_token !== old.refresh_token;
    check("both tokens are new", isNew, true);
    return pair;
  });

  await stage.step(
    "Send the very same request again, as a client does if the response got lost",
    async (check) => {
      const pair = bodyOf(200, await exchange(stage, old.refresh_token));
      check("the very same refresh token, character for character", pair.refresh_token, next.refresh_token);
      const active = bodyOf(200, await introspectOverHttp(stage, pair.access_token));
      check("with an access token of its own, as the first one may be lost", active.active, true);
    },
    "Until the new refresh token is used, also after the grace window, as the app proves its key.",
  );
  return next;
}

export async function change({ calls, user, credentials, step }: Stage): Promise<void> {
  const headers = { authorization: credentials.internal };
  const params = { path: { id: user.id } };

  await step("Change the identity: only what is sent is changed, null clears", async () => {
    const body = { email: null, metadata: { locale: "de-DE" } };
    statusIs(204, await calls.auth.PUT("/v1/identities/{id}", { headers, params, body }));
  });

  await step("Read it again", async (check) => {
    const identity = bodyOf(200, await calls.auth.GET("/v1/identities/{id}", { headers, params }));
    check("e-mail gone, metadata new, phone untouched; it can use a password too", identity, {
      id: user.id,
      phone: user.phone,
      metadata: { locale: "de-DE" },
      authenticationTypes: ["PHONE_OTP", "PASSWORD"],
    });
  });
}

export async function revoke(stage: Stage, { access_token, refresh_token }: TokenPair): Promise<void> {
  const { app, calls, credentials, step } = stage;

  await step("Sign out: revoke the refresh token, and with it every access token from it", async () => {
    bodyOf(200, await app.revoke(refresh_token));
  });

  await step("Is the access token still active? Ask over HTTP", async (check) => {
    isInactive(check, bodyOf(200, await introspectOverHttp(stage, access_token)));
  });
  for (const protocol of protocols) {
    await step(
      `Ask over ${protocol}`,
      async (check) => {
        const result = await calls.introspectOver(protocol, access_token, credentials.api);
        isInactive(check, { active: false, ...Object(result) });
      },
      "In a message of Protocol Buffers, what is false or empty is not there.",
    );
  }

  await step("Ask with credentials that nobody has", async (check) => {
    const nobody = basic("nobody", `wrong-${randomBytes(12).toString("base64url")}`);
    const refusal = failureOf(401, await introspectOverHttp(stage, access_token, nobody));
    check("it was refused as invalid_client", refusal.error, "invalid_client");
  });
}

export async function sayGoodbye({ calls, user, credentials, step }: Stage): Promise<void> {
  const headers = { authorization: credentials.internal };
  const params = { path: { id: user.id } };

  await step("Delete the identity", async () => {
    statusIs(204, await calls.auth.DELETE("/v1/identities/{id}", { headers, params }));
  });

  await step("Look for it", async (check) => {
    const problem = failureOf(404, await calls.auth.GET("/v1/identities/{id}", { headers, params }));
    check("it is gone", problem.code, "identity_not_found");
  });
}

function introspectOverHttp({ calls, credentials }: Stage, token: string, authorization = credentials.api) {
  return calls.auth.POST("/oauth2/v1/introspect", { headers: { authorization, ...form }, body: { token } });
}

function exchange({ app }: Stage, refresh_token: string) {
  return app.tokens({ grant_type: "refresh_token", refresh_token });
}

function isActive(result: Introspection): result is ActiveToken {
  return result.active;
}

function isInactive(check: Check, result: unknown): void {
  check("not active, and not a word more", result, { active: false });
}

/** The HTTP response as the message of auth.v1: each field once, times as strings. */
function asMessage({ client_id: _twice, token_type: _again, ...active }: ActiveToken): object {
  const { nbf, exp, iat } = active;
  return { ...active, nbf: String(nbf), exp: String(exp), iat: String(iat) };
}
