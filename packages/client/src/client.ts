/** What `@gatepost/client` has. */
export {
  type AuthorizedFetchOptions,
  authorizedFetch,
  type TokenSource,
} from "./authorized-fetch.ts";
export type { ClientCredentials } from "./call.ts";
export type { Signer } from "./dpop.ts";
export {
  type ChallengeErrorCode,
  GatepostError,
  OAuthError,
  type OAuthErrorCode,
  type ProblemCode,
  ProblemError,
  SignedOutError,
  type SignedOutReason,
  UnavailableError,
} from "./errors.ts";
export type { Platform } from "./platform.ts";
export { type SendOptions, sendNotification } from "./send-notification.ts";
export {
  type AuthClient,
  createAuthClient,
  createPushClient,
  type InputOf,
  type OutputOf,
  type PushClient,
  type ServiceClient,
  type ServiceClientOptions,
} from "./service-client.ts";
export { type ServiceTokenOptions, serviceToken } from "./service-token.ts";
export { createSession, type Session, type SessionOptions } from "./session.ts";
export {
  createSignIn,
  type DeviceDescription,
  type PendingSignIn,
  type SignIn,
  type SignInOptions,
} from "./sign-in.ts";
export { memoryStore, type SessionStore } from "./store.ts";
export type { AuthAddress } from "./token-endpoint.ts";
