/** The five grants of the token endpoint. */
import type { GrantType } from "../client-settings.ts";
import type { Identities } from "../identities/identities.ts";
import type { Identity } from "../identities/identity.ts";
import { normalisePassword } from "../identities/password.ts";
import { canonicalPhone } from "../identities/phone.ts";
import type { Guessing, GuessKind } from "../limits/guessing.ts";
import { admitHashing, hashOfNobody, requireHashing, verifySecret } from "../password-hashing/argon2id.ts";
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
  readonly guessing: Guessing;
}

/** A grant that creates a new authorization for the subject that it authenticates. */
interface AuthorizationGrant {
  readonly requires: Grant["requires"];
  authenticate(request: TokenRequest): Promise<AuthenticatedSubject | undefined>;
}

/** A grant with a secret that can be guessed: the account is found first, so that its guesses are limited. */
interface GuessableGrant {
  readonly requires: Grant["requires"];
  readonly guess: GuessKind;
  find(parameters: TokenParameters): Promise<GuessedAccount>;
  authenticate(request: TokenRequest, account: GuessedAccount): Promise<AuthenticatedSubject | undefined>;
}

interface GuessedAccount {
  /** In its canonical spelling. */
  readonly name: string;
  readonly identity: Identity | undefined;
}

/** Reads a parameter that the pipeline has checked to be present. */
function required(parameters: TokenParameters, name: keyof TokenParameters): string {
  const value = parameters[name];
  if (value === undefined) throw new Error(`The pipeline did not check that ${name} is present`);
  return value;
}

export function createGrants(dependencies: Dependencies): Record<GrantType, Grant> {
  const { identities, issuer, rotateRefreshToken, checkOneTimeCode, verifyOtpProof, guessing } = dependencies;
  // Verified if there is no identity, so that an unknown username takes as long as a known one.
  const dummyHash = hashOfNobody();

  function authorizationGrant(type: GrantType, { requires, authenticate }: AuthorizationGrant): Grant {
    return {
      requires,
      async redeem(request) {
        // Check the scope first: a request that is refused for its scope must not use up a one-time code.
        const scopes = request.chooseScopes(request.client.scopes);
        const subject = await authenticate(request);
        const pair = subject && (await issuer.authorize(request.client, type, subject, scopes));
        if (pair && subject.phone !== undefined) await guessing.proven(subject.identityId);
        return pair;
      },
    };
  }

  function guessableGrant(type: GrantType, { guess, find, authenticate, requires }: GuessableGrant): Grant {
    return {
      requires,
      async redeem(request) {
        const account = await find(request.parameters);
        const { name, identity } = account;
        const { redeem } = authorizationGrant(type, {
          requires,
          authenticate: (checked) => authenticate(checked, account),
        });
        const { clientId } = request.client;
        return guessing.limit({ kind: guess, clientId, account: { name, identityId: identity?.id } }, () =>
          redeem(request),
        );
      },
    };
  }

  /**
   * A grant whose check hashes. Only the hash takes one of the places for hashes: what a limit refuses takes none from
   * those who may guess.
   */
  function hashing({ requires, redeem }: Grant): Grant {
    return {
      requires,
      async redeem(request) {
        requireHashing();
        return redeem(request);
      },
    };
  }

  return {
    /** RFC 6749 section 4.3; RFC 9700 section 2.4 advises against it. */
    password: hashing(
      guessableGrant("password", {
        requires: ["username", "password"],
        guess: "password",
        async find(parameters) {
          const username = required(parameters, "username");
          const name =
            canonicalPhone(username) ?? (username.includes("@") ? username.toLowerCase() : username);
          return { name, identity: await identities.findByUsername(username) };
        },
        async authenticate({ parameters }, { identity }) {
          const passwordHash = identity?.passwordHash ?? dummyHash;
          const password = normalisePassword(required(parameters, "password"));
          const isRight = await admitHashing(() => verifySecret(passwordHash, password));
          return isRight && identity?.passwordHash ? { identityId: identity.id, passwordHash } : undefined;
        },
      }),
    ),

    /** RFC 6749 section 6. */
    refresh_token: {
      requires: ["refresh_token"],
      redeem: ({ client, parameters, chooseScopes }) =>
        rotateRefreshToken(client, required(parameters, "refresh_token"), chooseScopes),
    },

    phone_otp: guessableGrant("phone_otp", {
      requires: ["phone"],
      guess: "code",
      async find(parameters) {
        const typed = required(parameters, "phone");
        const phone = canonicalPhone(typed);
        return { name: phone ?? typed, identity: phone ? await identities.findByPhone(phone) : undefined };
      },
      async authenticate({ parameters, context }, { identity }) {
        const phone = canonicalPhone(required(parameters, "phone"));
        if (!phone) return undefined;
        // The verifier is asked about every phone: one without an identity then takes as long as one with.
        const verified = await checkOneTimeCode(phone, parameters.password, context);
        return verified && identity ? { identityId: identity.id, phone } : undefined;
      },
    }),

    auth: authorizationGrant("auth", {
      requires: ["auth_id"],
      authenticate: async ({ parameters }) => ({ identityId: required(parameters, "auth_id") }),
    }),

    phone_otp_token: authorizationGrant("phone_otp_token", {
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
