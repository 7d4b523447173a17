/** The five grants of the token endpoint. */
import type { GrantType } from "../client-settings.ts";
import type { Identities } from "../identities/identities.ts";
import { normalisePassword } from "../identities/password.ts";
import { canonicalPhone } from "../identities/phone.ts";
import type { AttemptLimit } from "../limits/attempts.ts";
import { hashSecret, verifySecret } from "../password-hashing/argon2id.ts";
import type { AuthenticatedSubject } from "../tokens/create-authorization.ts";
import type { RotateRefreshToken } from "../tokens/rotate-refresh-token.ts";
import type { TokenIssuer } from "../tokens/token-issuer.ts";
import type { Grant, TokenParameters, TokenRequest } from "./grant.ts";
import type { VerifyOtpProof } from "./otp-proof.ts";
import type { CheckOneTimeCode } from "./otp-verifier-client.ts";

interface Dependencies {
  readonly identities: Identities;
  readonly issuer: TokenIssuer;
  readonly rotateRefreshToken: RotateRefreshToken;
  readonly checkOneTimeCode: CheckOneTimeCode;
  readonly verifyOtpProof: VerifyOtpProof;
  readonly passwordLimit: AttemptLimit;
  readonly codeLimit: AttemptLimit;
}

/** A grant that creates a new authorization for the subject that it authenticates. */
function authorizationGrant(
  type: GrantType,
  issuer: TokenIssuer,
  definition: Omit<Grant, "redeem"> & {
    authenticate(request: TokenRequest): Promise<AuthenticatedSubject | undefined>;
  },
): Grant {
  const { authenticate, ...rest } = definition;
  return {
    ...rest,
    async redeem(request) {
      // Check the scope first: a request that is refused for its scope must not use up a one-time code.
      const scopes = request.chooseScopes(request.client.scopes);
      const subject = await authenticate(request);
      return subject && issuer.authorize(request.client, type, subject, scopes);
    },
  };
}

/** The canonical spelling of an account, so that another spelling does not evade the limit. */
function accountOf(name: string): string {
  return canonicalPhone(name) ?? name.trim().toLowerCase();
}

/** Reads a parameter that the pipeline has checked to be present. */
function required(parameters: TokenParameters, name: keyof TokenParameters): string {
  const value = parameters[name];
  if (value === undefined) throw new Error(`The pipeline did not check that ${name} is present`);
  return value;
}

export async function createGrants(dependencies: Dependencies): Promise<Record<GrantType, Grant>> {
  const { identities, issuer, rotateRefreshToken, checkOneTimeCode, verifyOtpProof } = dependencies;
  // Verified if there is no identity, so that an unknown username takes as long as a known one.
  const dummyHash = await hashSecret(crypto.randomUUID());

  return {
    /** RFC 6749 section 4.3; RFC 9700 section 2.4 advises against it. */
    password: authorizationGrant("password", issuer, {
      requires: ["username", "password"],
      guessing: {
        limit: dependencies.passwordLimit,
        account: (parameters) => accountOf(required(parameters, "username")),
      },
      async authenticate({ parameters }) {
        const identity = await identities.findByUsername(required(parameters, "username"));
        const passwordHash = identity?.passwordHash ?? dummyHash;
        const password = normalisePassword(required(parameters, "password"));
        const isRight = await verifySecret(passwordHash, password);
        return isRight && identity?.passwordHash ? { identityId: identity.id, passwordHash } : undefined;
      },
    }),

    /** RFC 6749 section 6. */
    refresh_token: {
      requires: ["refresh_token"],
      redeem: ({ client, parameters, chooseScopes }) =>
        rotateRefreshToken(client, required(parameters, "refresh_token"), chooseScopes),
    },

    phone_otp: authorizationGrant("phone_otp", issuer, {
      requires: ["phone"],
      guessing: {
        limit: dependencies.codeLimit,
        account: (parameters) => accountOf(required(parameters, "phone")),
      },
      async authenticate({ parameters, context }) {
        const phone = canonicalPhone(required(parameters, "phone"));
        if (!phone) return undefined;
        // Call the verifier before the look-up: a phone without an identity then takes as long as one with.
        const verified = await checkOneTimeCode(phone, parameters.password, context);
        const identity = await identities.findByPhone(phone);
        return verified && identity ? { identityId: identity.id, phone } : undefined;
      },
    }),

    auth: authorizationGrant("auth", issuer, {
      requires: ["auth_id"],
      authenticate: async ({ parameters }) => ({ identityId: required(parameters, "auth_id") }),
    }),

    phone_otp_token: authorizationGrant("phone_otp_token", issuer, {
      requires: ["phone", "otp_verification_token"],
      async authenticate({ parameters }) {
        const phone = canonicalPhone(required(parameters, "phone"));
        const otpProof = await verifyOtpProof(required(parameters, "otp_verification_token"), phone);
        const identity = phone === undefined ? undefined : await identities.findByPhone(phone);
        return otpProof && identity
          ? { identityId: identity.id, phone: identity.phone, otpProof }
          : undefined;
      },
    }),
  };
}
