/** The tokens of the requests that were let in. They are kept for as long as their request is. */
import type { AccessToken } from "./access-token.ts";

/** @param what the request, in the framework's word, for the error */
export function createTokens(what: string) {
  const tokens = new WeakMap<object, AccessToken>();
  return {
    keep: (request: object, token: AccessToken) => void tokens.set(request, token),
    tokenOf(request: object): AccessToken {
      const token = tokens.get(request);
      if (!token) throw new Error(`This ${what} did not come through bearer(): it has no access token`);
      return token;
    },
  };
}
