/** What issues, introspects and ends tokens: its parts, connected. */
import type { Clock } from "../platform/base/clock.ts";
import type { Database, Reads } from "../platform/database/database.ts";
import type { RequestOrigin } from "../platform/messaging/outbox.ts";
import type { Logger } from "../platform/observability/logger.ts";
import type { Metrics } from "../platform/observability/metrics.ts";
import { createAuthorizationCodes } from "./challenge/authorization-codes.ts";
import { createChallenge } from "./challenge/challenge.ts";
import { createExchangeCode } from "./challenge/exchange-code.ts";
import { createFindPhoneHolder } from "./challenge/phone-holder.ts";
import { allGrantTypes } from "./client-settings.ts";
import type { Authenticator } from "./clients/authenticate-client.ts";
import { createBuiltInVerifier } from "./codes/built-in-verifier.ts";
import type { ShowMessage } from "./codes/text-message.ts";
import { createGenerateTokens, tokenOutcomes } from "./grants/generate-tokens.ts";
import { createGrants } from "./grants/grants.ts";
import { createVerifyOtpProof } from "./grants/otp-proof.ts";
import { createOtpChecks } from "./grants/otp-verifier-client.ts";
import type { Identities } from "./identities/identities.ts";
import type { Guessing } from "./limits/guessing.ts";
import { createNonces } from "./proofs/nonces.ts";
import { createVerifyProof } from "./proofs/proof.ts";
import type { AuthSettings } from "./settings.ts";
import type { AccessTokens } from "./tokens/access-token.ts";
import type { Confirmed } from "./tokens/confirmed.ts";
import { CurrentTokens } from "./tokens/current-tokens.ts";
import { endOrganization } from "./tokens/end-authorizations.ts";
import { type createAuthorizationRepository, createIntrospect } from "./tokens/introspect.ts";
import { createFindPresented } from "./tokens/presented-token.ts";
import { createRevoke } from "./tokens/revoke.ts";
import { createRotateRefreshToken } from "./tokens/rotate-refresh-token.ts";
import { createRotations } from "./tokens/rotations.ts";
import { createTokenIssuer } from "./tokens/token-issuer.ts";

interface Dependencies {
  readonly settings: AuthSettings;
  readonly metrics: Metrics;
  readonly logger: Logger;
  readonly db: Database;
  readonly reads: Reads;
  readonly clock: Clock;
  readonly accessTokens: AccessTokens;
  readonly authorizations: ReturnType<typeof createAuthorizationRepository>;
  readonly confirmed: Confirmed;
  readonly identities: Identities;
  readonly guessing: Guessing;
  readonly authenticator: Authenticator;
  readonly showMessage?: ShowMessage | undefined;
}

/** @returns the operations; `rotations` and `codes` are to be stopped with the service */
export function createTokenOperations(dependencies: Dependencies) {
  const { settings, metrics, logger, db, reads, clock, accessTokens, confirmed } = dependencies;
  const { authorizations, identities, guessing, authenticator } = dependencies;
  const { issuer, otp, firstPartyApps } = settings;
  const findPresented = createFindPresented(reads);
  const rotations = createRotations(db, (err) => logger.warn({ err }, "Rotations could not be stamped"));
  const currentTokens = new CurrentTokens();
  const introspect = createIntrospect({ accessTokens, authorizations });
  const tokenIssuer = createTokenIssuer({ db, clock, accessTokens, currentTokens, issuer });
  const issuers = firstPartyApps?.issuers ?? [];
  const verifyProof = createVerifyProof({ nonces: createNonces(db, clock), clock, issuers });
  const authorizationCodes = createAuthorizationCodes(db, clock);
  const findPhoneHolder = createFindPhoneHolder(db);
  const codes =
    settings.codes && createBuiltInVerifier({ ...dependencies, settings: settings.codes, issuer });
  const outcomes = metrics.counter("gatepost_token_requests_total", "Token requests, by grant and outcome.", {
    grant_type: allGrantTypes,
    outcome: tokenOutcomes,
  });
  return {
    generateTokens: createGenerateTokens({
      grants: createGrants({
        identities,
        tokenIssuer,
        rotateRefreshToken: createRotateRefreshToken({
          ...{ db, clock, currentTokens, findPresented, rotations, tokenIssuer, introspect, confirmed },
        }),
        otpChecks: createOtpChecks(otp.verifierUrl),
        verifyOtpProof: createVerifyOtpProof(otp, clock),
        exchangeCode: createExchangeCode({
          ...{ authorizationCodes, findPhoneHolder, identities, tokenIssuer, findPresented, confirmed },
        }),
        guessing,
      }),
      verifyProof,
      countOutcome: (grant_type, outcome) => outcomes.inc({ grant_type, outcome }),
    }),
    /** Undefined: apps without a secret are not served. */
    challenge:
      firstPartyApps &&
      codes &&
      createChallenge({ authenticator, codes, authorizationCodes, findPhoneHolder, verifyProof, clock }),
    introspect,
    revoke: createRevoke({ db, accessTokens, findPresented, confirmed }),
    async endOrganization(id: string, origin: RequestOrigin) {
      await endOrganization(db, id, origin);
      await confirmed.untilStandbysKnow();
    },
    rotations,
    codes,
  };
}
