/** The five grants, as data for the pipeline. */
import type { GrantType } from "../client-settings.ts";
import { type Identities, normalisePassword } from "../identities/identities.ts";
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

/** A grant that begins a new authorization for whom it establishes. */
function beginning(
  type: GrantType,
  issuer: TokenIssuer,
  grant: Omit<Grant, "redeem"> & {
    establish(request: TokenRequest): Promise<AuthenticatedSubject | undefined>;
  },
): Grant {
  const { establish, ...rest } = grant;
  return {
    ...rest,
    async redeem(request) {
      // Before anything is used up: a scope that is refused must not cost the user a one-time code.
      const scopes = request.chooseScopes(request.client.scopes);
      const established = await establish(request);
      return established && issuer.authorize(request.client, type, established, scopes);
    },
  };
}

/** One spelling for each account, so that no other spelling evades the limit. */
function accountOf(name: string): string {
  return canonicalPhone(name) ?? name.trim().toLowerCase();
}

/** The parameter is there: the pipeline has seen to it. */
function required(parameters: TokenParameters, name: keyof TokenParameters): string {
  const value = parameters[name];
  if (value === undefined) throw new Error(`${name} is missing behind the pipeline`);
  return value;
}

export async function createGrants(dependencies: Dependencies): Promise<Record<GrantType, Grant>> {
  const { identities, issuer, rotateRefreshToken, checkOneTimeCode, verifyOtpProof } = dependencies;
  // What the password of nobody is compared with, so that an unknown username takes as long as a known one.
  const nobodysHash = await hashSecret(crypto.randomUUID());

  return {
    /** RFC 6749 section 4.3; RFC 9700 section 2.4 advises against it. */
    password: beginning("password", issuer, {
      requires: ["username", "password"],
      guessing: {
        limit: dependencies.passwordLimit,
        account: (parameters) => accountOf(required(parameters, "username")),
      },
      async establish({ parameters }) {
        const identity = await identities.findByUsername(required(parameters, "username"));
        const passwordHash = identity?.passwordHash ?? nobodysHash;
        const password = normalisePassword(required(parameters, "password"));
        const right = await verifySecret(passwordHash, password);
        return right && identity?.passwordHash ? { identityId: identity.id, passwordHash } : undefined;
      },
    }),

    /** RFC 6749 section 6. */
    refresh_token: {
      requires: ["refresh_token"],
      redeem: ({ client, parameters, chooseScopes }) =>
        rotateRefreshToken(client, required(parameters, "refresh_token"), chooseScopes),
    },

    phone_otp: beginning("phone_otp", issuer, {
      requires: ["phone"],
      guessing: {
        limit: dependencies.codeLimit,
        account: (parameters) => accountOf(required(parameters, "phone")),
      },
      async establish({ parameters, context }) {
        const phone = canonicalPhone(required(parameters, "phone"));
        if (!phone) return undefined;
        // The verifier is asked about a phone that nobody has, too: the answer takes as long.
        const verified = await checkOneTimeCode(phone, parameters.password, context);
        const identity = await identities.findByPhone(phone);
        return verified && identity ? { identityId: identity.id, phone } : undefined;
      },
    }),

    auth: beginning("auth", issuer, {
      requires: ["auth_id"],
      establish: async ({ parameters }) => ({ identityId: required(parameters, "auth_id") }),
    }),

    phone_otp_token: beginning("phone_otp_token", issuer, {
      requires: ["phone", "otp_verification_token"],
      async establish({ parameters }) {
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
