/**
 * Access tokens of Google by application default credentials: the file of GOOGLE_APPLICATION_CREDENTIALS (workload
 * identity federation), or the metadata server. Google's library is loaded with the first token.
 */
import { codeIn, member, reasonOf } from "../outcomes.ts";
import type { Outcome } from "../provider.ts";
import {
  type AccessToken,
  isAccessToken,
  messagingScope,
  type NoAccess,
  type TokenSource,
} from "./google-access.ts";

/** Milliseconds after which a token is no longer waited for; the library tries several times by itself. */
const timeoutMs = 15_000;

async function fetchToken(projectId: string): Promise<AccessToken | NoAccess> {
  const { GoogleAuth } = await import("google-auth-library");
  // The client is a new one each time: it keeps tokens, and would return one that FCM has refused.
  const client = await new GoogleAuth({ scopes: [messagingScope], projectId }).getClient();
  const { token } = await client.getAccessToken();
  const { expiry_date: expiresAt } = client.credentials;
  if (isAccessToken(token) && typeof expiresAt === "number") return { token, expiresAt };
  return { outcome: { kind: "unavailable", reason: "OAuth: 200 without a token" } };
}

const noResponse: Outcome = { kind: "unavailable", hasNoResponse: true, reason: "OAuth: no response" };

/** The outcome for an error of the library. The error's message is not passed on: it may quote the request. */
function outcomeOf(thrown: unknown): Outcome {
  const response = member(thrown, "response");
  const status = member(response, "status");
  if (typeof status !== "number") {
    // An error of a request has the request's configuration. Any other error was thrown before there was a request.
    return member(thrown, "config") === undefined
      ? { kind: "refused", reason: "OAuth: no application default credentials" }
      : noResponse;
  }
  const reason = `OAuth: ${reasonOf(status, codeIn(member(member(response, "data"), "error")))}`;
  return { kind: status === 429 || status >= 500 ? "unavailable" : "refused", reason };
}

/** @param projectId of FCM; without it the library would look for one, by a program or a request */
export const applicationDefaultTokens = (projectId: string): TokenSource => ({
  async fetch() {
    const timeout = Promise.withResolvers<NoAccess>();
    const timer = setTimeout(() => timeout.resolve({ outcome: noResponse }), timeoutMs);
    const fetching = fetchToken(projectId).catch(
      (thrown: unknown): NoAccess => ({ outcome: outcomeOf(thrown) }),
    );
    try {
      return await Promise.race([fetching, timeout.promise]);
    } finally {
      clearTimeout(timer);
    }
  },
  close: async () => undefined,
});
