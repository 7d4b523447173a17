import { ServiceError } from "../../platform/base/errors.ts";
import { AuthErrorKinds } from "../errors.ts";

/** scope-token of RFC 6749 section 3.3. */
const scopeToken = /^[\x21\x23-\x5b\x5d-\x7e]+$/;

/** The requested scopes if all of them are permitted, or all permitted ones where none are requested. @throws invalid_scope */
export function chooseScopes(requested: string | undefined, permitted: readonly string[]): readonly string[] {
  if (requested === undefined) return permitted;
  const scopes = [...new Set(requested.split(" ").filter((scope) => scope !== ""))];
  const refused = scopes.find((scope) => !scopeToken.test(scope) || !permitted.includes(scope));
  if (refused === undefined && scopes.length > 0) return scopes;
  throw new ServiceError(
    AuthErrorKinds.invalidScope,
    "The scope asks for more than is permitted, or is malformed.",
  );
}
