/**
 * The challenge of first-party apps (draft-ietf-oauth-first-party-apps-04): a phone, a one-time code that is sent to it,
 * and in the end an authorization code. Nothing that a caller sees depends on whether anybody has the phone.
 */
import type { Clock } from "../../platform/base/clock.ts";
import { ErrorKinds, type InputError, invalidInput, ServiceError } from "../../platform/base/errors.ts";
import type { Authenticator } from "../clients/authenticate-client.ts";
import { chooseScopes } from "../clients/choose-scopes.ts";
import type { Codes } from "../codes/codes.ts";
import { AuthErrorKinds, noPublicClient } from "../errors.ts";
import { canonicalPhone } from "../identities/phone.ts";
import type { VerifyProof } from "../proofs/proof.ts";
import { requireAttestation } from "./attestation.ts";
import type { AuthorizationCodes } from "./authorization-codes.ts";
import type { FindPhoneHolder } from "./phone-holder.ts";

/** The parameters of the contract. */
interface ChallengeParameters {
  readonly client_id: string | undefined;
  readonly response_type: string | undefined;
  readonly login_hint: string | undefined;
  readonly scope: string | undefined;
  readonly code_challenge: string | undefined;
  readonly code_challenge_method: string | undefined;
  readonly auth_session: string | undefined;
  readonly otp: string | undefined;
}

/** A request, with the headers that belong to it. */
interface ChallengeRequest {
  readonly parameters: ChallengeParameters;
  /** DPoP. */
  readonly proof: string | undefined;
  /** OAuth-Client-Attestation. */
  readonly attestation: string | undefined;
  /** Of the caller; undefined if its connection is gone. */
  readonly address: string | undefined;
}

/** @returns the authorization code @throws for every other outcome, also for the next step of a challenge */
export type ChallengeAuthorization = (request: ChallengeRequest) => Promise<string>;

interface Dependencies {
  readonly authenticator: Authenticator;
  readonly codes: Codes;
  readonly authorizationCodes: AuthorizationCodes;
  readonly findPhoneHolder: FindPhoneHolder;
  readonly verifyProof: VerifyProof;
  readonly clock: Clock;
}

type SessionState = Awaited<ReturnType<Codes["begin"]>>;
type CodeRefusal = Exclude<Awaited<ReturnType<Codes["mayBegin"]>>, undefined>;

/** Of the operation, below the issuer. */
const path = "/oauth2/v1/authorize-challenge";

export function createChallenge(dependencies: Dependencies): ChallengeAuthorization {
  const { authenticator, codes, authorizationCodes, findPhoneHolder, verifyProof, clock } = dependencies;

  async function begin({ parameters, proof, attestation, address }: ChallengeRequest): Promise<never> {
    const caller = await authenticator.publicClient(parameters.client_id ?? "");
    if (!caller) throw noPublicClient();
    const { clientId, client } = caller;
    if (!client.grantTypes.includes("authorization_code")) throw mayNotBegin();
    const { phone, codeChallenge } = beginning(parameters);
    const { scope } = parameters;
    const scopes = scope === undefined ? undefined : chooseScopes(scope, client.scopes);
    const keyThumbprint = await verifyProof(proof, path);
    await requireAttestation(client, { header: attestation, keyThumbprint }, clock);
    // Before anybody is looked up, so that no limit tells who is there.
    const refusal = await codes.mayBegin({ phone, clientId, address });
    if (refusal) throw refused(refusal);
    const identity = await findPhoneHolder(phone);
    const isSent = identity !== undefined || client.clientSettings.signUp === true;
    throw otpRequired(
      await codes.begin({ phone, clientId, scopes, codeChallenge, keyThumbprint, identity, isSent }),
    );
  }

  async function goOn(authSession: string, request: ChallengeRequest): Promise<string> {
    const { client_id: clientId, otp } = request.parameters;
    const session = { authSession, clientId, keyThumbprint: await verifyProof(request.proof, path) };
    if (otp === undefined) {
      const resent = await codes.resend(session, request.address);
      if (resent.kind === "invalid") throw invalidSession();
      throw resent.kind === "sent" ? otpRequired(resent.session) : refused(resent);
    }
    const checked = await codes.check(session, otp);
    if (checked.kind === "invalid") throw invalidSession();
    if (checked.kind === "wrong") throw otpRequired(checked.session);
    const code = await authorizationCodes.issue(checked.sessionHash);
    if (code === undefined) throw invalidSession();
    return code;
  }

  return async (request) => {
    const { login_hint: hint, auth_session: session, otp } = request.parameters;
    if (hint !== undefined && otp !== undefined) {
      throw invalidInput([
        { pointer: "/body/otp", message: "must not be beside login_hint, which begins anew" },
      ]);
    }
    return hint === undefined && session !== undefined ? goOn(session, request) : begin(request);
  };
}

/** SHA-256 in base64url (RFC 7636 section 4.2). */
const codeChallengePattern = /^[A-Za-z0-9_-]{43}$/;

/** What a challenge begins with. @throws invalid_request */
function beginning(parameters: ChallengeParameters): { phone: string; codeChallenge: string } {
  const { response_type, login_hint = "", code_challenge = "", code_challenge_method } = parameters;
  const phone = canonicalPhone(login_hint);
  const errors: InputError[] = [];
  const requireThat = (fits: boolean, member: string, message: string) => {
    if (!fits) errors.push({ pointer: `/body/${member}`, message });
  };
  requireThat(response_type === "code", "response_type", "must be code");
  requireThat(phone !== undefined, "login_hint", "must be a phone number in international format");
  requireThat(codeChallengePattern.test(code_challenge), "code_challenge", "must be a SHA-256 in base64url");
  requireThat(code_challenge_method === "S256", "code_challenge_method", "must be S256");
  if (phone === undefined || errors.length > 0) throw invalidInput(errors);
  return { phone, codeChallenge: code_challenge };
}

function mayNotBegin(): ServiceError {
  const detail = "This client may not sign users in: its grantTypes need authorization_code.";
  return new ServiceError(AuthErrorKinds.unauthorizedClient, detail);
}

/** The next step: the same for a wrong code, so that nobody learns how many tries are left. */
function otpRequired({ authSession, expiresInSeconds, resendAfterSeconds }: SessionState): ServiceError {
  return new ServiceError(
    AuthErrorKinds.insufficientAuthorization,
    "Send the one-time code that the phone gets as otp, with this auth_session.",
    {
      members: {
        auth_session: authSession,
        otp_required: true,
        auth_session_expires_in: expiresInSeconds,
        resend_after: resendAfterSeconds,
      },
    },
  );
}

function refused(refusal: CodeRefusal): ServiceError {
  if (refusal.kind === "denied") {
    return new ServiceError(AuthErrorKinds.accessDenied, "No one-time codes are sent to this phone number.");
  }
  const { retryAfterSeconds } = refusal;
  return new ServiceError(
    ErrorKinds.tooManyRequests,
    `No one-time code is sent now. Wait ${retryAfterSeconds} seconds and try again.`,
    { retryAfterSeconds },
  );
}

function invalidSession(): ServiceError {
  const detail = "The session is over, or is not of this client and key. Begin anew with login_hint.";
  return new ServiceError(AuthErrorKinds.invalidSession, detail);
}
