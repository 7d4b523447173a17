/** What a request needs beside a good token. `bearer` throws a TypeError, when it is called, for what is none. */
export interface Requirements {
  /** All of them are needed (RFC 6749 section 3.3). None unless given. */
  readonly scopes?: readonly string[];
  /** Whether clients that act for no user are let in, too: then `sub` may be a client's id, equal to `clientId`. */
  readonly clients?: boolean;
}

const scopeText = /^[\x21\x23-\x5b\x5d-\x7e]+$/;

/** For those who write JavaScript: what is misspelt would need nothing. @throws TypeError */
export function checkRequirements(requirements: Requirements): void {
  if (typeof requirements !== "object" || requirements === null)
    throw new TypeError('Requirements are an object, such as { scopes: ["orders"] }');
  const { scopes = [], clients, ...others } = requirements;
  const [other] = Object.keys(others);
  if (other !== undefined)
    throw new TypeError(`Requirements have no ${JSON.stringify(other)}, but scopes and clients`);
  if (!Array.isArray(scopes)) throw new TypeError('scopes must be an array, such as ["orders"]');
  if (!scopes.every((scope) => typeof scope === "string" && scopeText.test(scope)))
    throw new TypeError(`${JSON.stringify(scopes)} are no scopes: name one per item`);
  if (clients !== undefined && typeof clients !== "boolean")
    throw new TypeError("clients must be true or false");
}
