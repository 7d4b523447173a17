/** The grants of the token endpoint. */
import { ServiceError, unavailable } from "../../platform/base/errors.ts";
import type { ExchangeCode } from "../challenge/exchange-code.ts";
import type { GrantType } from "../client-settings.ts";
import { mayActAs } from "../clients/as-client.ts";
import { AuthErrorKinds } from "../errors.ts";
import type { Identities } from "../identities/identities.ts";
import { comparedEmail, type Identity } from "../identities/identity.ts";
import { normalisePassword } from "../identities/password.ts";
import { canonicalPhone } from "../identities/phone.ts";
import type { Guessing, GuessKind } from "../limits/guessing.ts";
import { hashingLimit, hashOfNobody, verifyPassword } from "../password-hashing/argon2id.ts";
import type { AuthenticatedSubject, NewAuthorization } from "../tokens/create-authorization.ts";
import type { RotateRefreshToken } from "../tokens/rotate-refresh-token.ts";
import type { TokenIssuer } from "../tokens/token-issuer.ts";
import type { WorkLimit } from "../work-limit.ts";
import type { Grant, TokenParameters, TokenRequest } from "./grant.ts";
import type { VerifyOtpProof } from "./otp-proof.ts";
import type { OtpChecks } from "./otp-verifier-client.ts";

interface Dependencies {
  readonly identities: Identities;
  readonly tokenIssuer: TokenIssuer;
  readonly rotateRefreshToken: RotateRefreshToken;
  readonly otpChecks: OtpChecks;
  readonly verifyOtpProof: VerifyOtpProof;
  readonly exchangeCode: ExchangeCode;
  readonly guessing: Guessing;
}

/** A grant with a secret that can be guessed: the account is found first, so that its guesses are limited. */
interface GuessableGrant {
  readonly requires: Grant["requires"];
  readonly guess: GuessKind;
  /** The limit on authenticating subjects at the same time. */
  readonly limit: WorkLimit;
  find(parameters: TokenParameters): Promise<GuessedAccount>;
  authenticate(request: TokenRequest, account: GuessedAccount): Promise<AuthenticatedSubject | undefined>;
}

interface GuessedAccount {
  /** In its canonical spelling. */
  readonly name: string;
  readonly identity: Identity | undefined;
}

type Granted = Pick<NewAuthorization, "subject" | "scopes"> & { readonly grantType: GrantType };

/** Reads a parameter that the pipeline has checked to be present. */
function required(parameters: TokenParameters, name: keyof TokenParameters): string {
  const value = parameters[name];
  if (value === undefined) throw new Error(`The pipeline did not check that ${name} is present`);
  return value;
}

/**
 * Milliseconds within which a guess comes to be judged, or is refused: no code is used up for a caller who has left.
 */
const judgedWithinMs = 2_500;

export function createGrants(dependencies: Dependencies): Record<GrantType, Grant> {
  const { identities, tokenIssuer, rotateRefreshToken, otpChecks, verifyOtpProof } = dependencies;
  const { exchangeCode, guessing } = dependencies;
  // Verified if there is no identity, so that an unknown username takes as long as a known one.
  const dummyHash = hashOfNobody();

  /**
   * The scopes of the pair. Chosen before anything else: a request that is refused for its scope must not use up a
   * one-time code, nor count as a guess.
   */
  const scopesOf = ({ client, chooseScopes }: TokenRequest) => chooseScopes(client.scopes);

  const authorize = ({ client, description }: TokenRequest, granted: Granted) =>
    tokenIssuer.authorize({ client, description, ...granted });

  function guessableGrant(type: GrantType, grant: GuessableGrant): Grant {
    const { guess: kind, limit, find, authenticate, requires } = grant;
    return {
      requires,
      async redeem(request) {
        const scopes = scopesOf(request);
        // Refused before the account is looked up, so that a flood costs the database nothing.
        limit.refuseIfFull();
        const judgedUntil = performance.now() + judgedWithinMs;
        const { client } = request;
        const account = await find(request.parameters);
        return guessing.limit({ kind, clientId: client.clientId, account, judging: limit }, async () => {
          if (performance.now() > judgedUntil) {
            throw unavailable(
              "A service that this one depends on",
              new Error("the guess came to be judged too late"),
            );
          }
          const subject = await authenticate(request, account);
          return subject && authorize(request, { grantType: type, subject, scopes });
        });
      },
    };
  }

  return {
    /** RFC 6749 section 4.3; RFC 9700 section 2.4 advises against it. */
    password: guessableGrant("password", {
      requires: ["username", "password"],
      guess: "password",
      limit: hashingLimit,
      async find(parameters) {
        const username = required(parameters, "username");
        const name =
          canonicalPhone(username) ?? (username.includes("@") ? comparedEmail(username) : username);
        return { name, identity: await identities.findByUsername(username) };
      },
      async authenticate({ parameters }, { identity }) {
        const passwordHash = identity?.passwordHash ?? dummyHash;
        const password = normalisePassword(required(parameters, "password"));
        const isRight = await verifyPassword(passwordHash, password);
        return isRight && identity?.passwordHash ? { identityId: identity.id, passwordHash } : undefined;
      },
    }),

    /** RFC 6749 section 6. */
    refresh_token: {
      requires: ["refresh_token"],
      redeem: ({ client, keyThumbprint, parameters, chooseScopes, context: { requestId } }) =>
        rotateRefreshToken(client, {
          token: required(parameters, "refresh_token"),
          ...{ keyThumbprint, chooseScopes, requestId },
        }),
    },

    phone_otp: guessableGrant("phone_otp", {
      requires: ["phone"],
      guess: "code",
      limit: otpChecks.limit,
      async find(parameters) {
        const typed = required(parameters, "phone");
        const phone = canonicalPhone(typed);
        return { name: phone ?? typed, identity: phone ? await identities.findByPhone(phone) : undefined };
      },
      async authenticate({ parameters, context }, { identity }) {
        const phone = canonicalPhone(required(parameters, "phone"));
        if (!phone) return undefined;
        // The verifier is asked about every phone: one without an identity then takes as long as one with.
        const verified = await otpChecks.check(phone, parameters.password, context);
        return verified && identity ? { identityId: identity.id, phone } : undefined;
      },
    }),

    auth: {
      requires: ["auth_id"],
      async redeem(request) {
        const subject = { identityId: required(request.parameters, "auth_id") };
        return authorize(request, { grantType: "auth", subject, scopes: scopesOf(request) });
      },
    },

    /** RFC 6749 section 4.4, for the client itself or an organization. */
    client_credentials: {
      requires: [],
      async redeem(request) {
        const { client, parameters } = request;
        const asClient = { organizationId: parameters.organization ?? null };
        if (!mayActAs(client, asClient)) {
          const message =
            "This client may not act for this organization. Its clientSettings in OAUTH_SERVER_CLIENTS need it among organizations.";
          throw new ServiceError(AuthErrorKinds.unauthorizedClient, message);
        }
        const subject = { identityId: client.clientId, asClient };
        return authorize(request, { grantType: "client_credentials", subject, scopes: scopesOf(request) });
      },
    },

    /** RFC 6749 section 4.1.3, of a challenge. */
    authorization_code: {
      requires: ["code", "code_verifier"],
      redeem: ({ client, keyThumbprint, parameters, description }) =>
        exchangeCode(client, {
          code: required(parameters, "code"),
          codeVerifier: required(parameters, "code_verifier"),
          ...{ keyThumbprint, description },
        }),
    },

    phone_otp_token: {
      requires: ["phone", "otp_verification_token"],
      async redeem(request) {
        const { parameters } = request;
        const scopes = scopesOf(request);
        const phone = canonicalPhone(required(parameters, "phone"));
        const otpProof = await verifyOtpProof(required(parameters, "otp_verification_token"), phone);
        const identity = phone === undefined ? undefined : await identities.findByPhone(phone);
        if (!otpProof || !identity) return undefined;
        const subject = { identityId: identity.id, phone: identity.phone, otpProof };
        const pair = await authorize(request, { grantType: "phone_otp_token", subject, scopes });
        if (pair) await guessing.phoneProven(identity);
        return pair;
      },
    },
  };
}
