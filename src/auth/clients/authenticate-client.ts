import { createHash, hash as digest, randomBytes, timingSafeEqual } from "node:crypto";
import { LRUCache } from "lru-cache";
import { ServiceError } from "../../platform/base/errors.ts";
import { AuthErrorKinds, invalidClient } from "../errors.ts";
import { verifyClientSecret } from "../password-hashing/argon2id.ts";
import type { AuthenticationMethod, Client, ClientRepository } from "./client-repository.ts";

/**
 * A cache of secrets that argon2 has verified, as digests under a random key of this process. An entry is valid for one
 * stored hash only.
 */
export class VerifiedSecrets {
  readonly #key = randomBytes(32).toString("base64url");
  readonly #headers = new LRUCache<string, { clientId: string; secretHash: string }>({ max: 1000 });
  /** Digests of secrets, by the stored hash that each was verified against. */
  readonly #verified = new Map<string, Buffer>();

  #digest(secret: string): Buffer {
    return digest("sha256", this.#key + secret, "buffer");
  }

  #headerDigest(authorization: string): string {
    return digest("sha256", this.#key + authorization, "base64url");
  }

  add(secretHash: string, secret: string): void {
    this.#verified.set(secretHash, this.#digest(secret));
  }

  /** Caches a whole Authorization header that was verified, so that it need not be parsed the next time. */
  addHeader(authorization: string, clientId: string, secretHash: string): void {
    this.#headers.set(this.#headerDigest(authorization), { clientId, secretHash });
  }

  /** The client for which the header was verified, and the hash of its secret at that time. */
  findHeader(authorization: string): { readonly clientId: string; readonly secretHash: string } | undefined {
    return this.#headers.get(this.#headerDigest(authorization));
  }

  /** True if this secret was verified against this hash; false does not mean that it is wrong. */
  isVerified(secretHash: string, secret: string): boolean {
    const known = this.#verified.get(secretHash);
    return known !== undefined && timingSafeEqual(known, this.#digest(secret));
  }

  /** True if the secret of this hash was verified: every other secret is wrong. */
  isKnown(secretHash: string): boolean {
    return this.#verified.has(secretHash);
  }
}

/** The authenticated caller of a protected operation. */
export type Caller = { readonly clientId: string } & (
  | { readonly kind: "internal" | "platform" }
  | { readonly kind: "client"; readonly client: Client }
  | PublicCaller
);

/** A client that has no secret: anybody who knows its id. */
interface PublicCaller {
  readonly kind: "public";
  readonly clientId: string;
  readonly client: Client;
}

/** Refuses a caller that may not introspect tokens of this issuer. */
export function requireIntrospection(caller: Caller): void {
  // Where a secret is needed, its id makes it nobody.
  if (caller.kind === "public") throw invalidClient();
  if (caller.kind !== "client" || caller.client.clientSettings.mayIntrospect) return;
  throw new ServiceError(
    AuthErrorKinds.mayNotIntrospect,
    "This client may not introspect. Its clientSettings in OAUTH_SERVER_CLIENTS need mayIntrospect: true.",
  );
}

interface Credentials {
  readonly id: string;
  readonly secret: string;
}

interface Dependencies {
  readonly clients: ClientRepository;
  readonly verified: VerifiedSecrets;
  readonly internalClient: { readonly clientId: string; readonly clientSecrets: readonly string[] };
  readonly platformSecurityApiKeys: readonly string[];
  /** Whether clients without a secret are served. */
  readonly firstPartyApps: boolean;
}

/** A secret that may be one of a client's, and the stored hash to verify it against. */
interface Candidate {
  readonly client: Client;
  readonly secretHash: string;
  readonly secret: string;
}

/** A client whose secret is right, and the stored hash that it was verified against. */
interface Verified {
  readonly client: Client;
  readonly secretHash: string;
}

/** Checks of a caller's credentials, the same for every protocol. Each returns undefined for wrong ones. */
export interface Authenticator {
  /** Basic credentials of a registered client, or of the internal client. Not a promise if they are cached. */
  client(authorization: string | undefined): Caller | undefined | Promise<Caller | undefined>;
  /** Credentials in the body of a request, of a client that lists `client_secret_post`. */
  posted(id: string, secret: string): Promise<Caller | undefined>;
  /** A client of the method `none`. */
  publicClient(id: string): Promise<PublicCaller | undefined>;
  /** Basic credentials of the internal client only. */
  internal(authorization: string | undefined): Caller | undefined;
  /** The key of the platform security interface. */
  platform(apiKey: string | undefined): Caller | undefined;
}

/** Characters; longer than any id and secret that can be registered, encoded. */
const maxHeaderLength = 4096;

/** Whether a text is one of the secrets. Compares with each in constant time, also where the lengths differ. */
function isOneOf(secrets: readonly string[], text: string): boolean {
  const digest = (one: string) => createHash("sha256").update(one).digest();
  const sought = digest(text);
  return secrets.map((secret) => timingSafeEqual(digest(secret), sought)).includes(true);
}

/**
 * The possible credentials of an Authorization header, scheme Basic: form-encoded (RFC 6749 section 2.3.1), and plain.
 */
function basicCredentials(authorization: string | undefined): Credentials[] {
  if (authorization === undefined || authorization.length > maxHeaderLength) return [];
  const encoded = /^basic +([A-Za-z0-9+/]+={0,2}) *$/i.exec(authorization)?.[1];
  if (encoded === undefined) return [];
  const pair = Buffer.from(encoded, "base64").toString("utf8");
  const colon = pair.indexOf(":");
  if (colon === -1) return [];
  const plain = { id: pair.slice(0, colon), secret: pair.slice(colon + 1) };
  if (!/[%+]/.test(pair)) return [plain];
  try {
    const decode = (text: string) => decodeURIComponent(text.replaceAll("+", " "));
    return [{ id: decode(plain.id), secret: decode(plain.secret) }, plain];
  } catch {
    return [plain];
  }
}

/** Whether a header that was verified for a client is still right: the client may have changed since. */
function isStillValid(cached: { readonly secretHash: string }, client: Client): boolean {
  return (
    client.secretHashes.includes(cached.secretHash) &&
    client.authenticationMethods.includes("client_secret_basic")
  );
}

const callerOf = (client: Client): Caller => ({ kind: "client", clientId: client.clientId, client });

export function createAuthenticator(dependencies: Dependencies): Authenticator {
  const { clients, verified, internalClient, platformSecurityApiKeys, firstPartyApps } = dependencies;

  function internal(pairs: readonly Credentials[]): Caller | undefined {
    const { clientId, clientSecrets } = internalClient;
    const isRight = pairs.some(({ id, secret }) => id === clientId && isOneOf(clientSecrets, secret));
    return isRight ? { kind: "internal", clientId } : undefined;
  }

  /** The enabled client with this id, if it lists the method. */
  async function listing(id: string, method: AuthenticationMethod): Promise<Client | undefined> {
    const client = id.includes("\0") ? undefined : await clients.findEnabled(id);
    return client?.authenticationMethods.includes(method) ? client : undefined;
  }

  /** The pairs whose id is that of an enabled client that lists the method, with each of the client's hashes. */
  async function candidatesOf(
    pairs: readonly Credentials[],
    method: AuthenticationMethod,
  ): Promise<Candidate[]> {
    const found: Candidate[] = [];
    for (const { id, secret } of pairs) {
      const client = await listing(id, method);
      if (!client) continue;
      found.push(...client.secretHashes.map((secretHash) => ({ client, secretHash, secret })));
    }
    return found;
  }

  async function registered(
    pairs: readonly Credentials[],
    method: AuthenticationMethod,
  ): Promise<Verified | undefined> {
    const candidates = await candidatesOf(pairs, method);
    const known = candidates.find(({ secretHash, secret }) => verified.isVerified(secretHash, secret));
    if (known) return known;
    // Where the secret of a hash is known, any other one is wrong, and costs no argon2. There is no limit on guessing,
    // which would lock the client out: a secret is protected by its length.
    for (const candidate of candidates) {
      const { secretHash, secret } = candidate;
      if (verified.isKnown(secretHash)) continue;
      if (!(await verifyClientSecret(secretHash, secret))) continue;
      verified.add(secretHash, secret);
      return candidate;
    }
    return undefined;
  }

  async function authenticate(authorization: string): Promise<Caller | undefined> {
    const cached = verified.findHeader(authorization);
    const client = cached && (await clients.findEnabled(cached.clientId));
    if (client && isStillValid(cached, client)) return callerOf(client);
    const pairs = basicCredentials(authorization);
    const others = pairs.filter(({ id }) => id !== internalClient.clientId);
    const caller = internal(pairs);
    if (caller) return caller;
    const right = await registered(others, "client_secret_basic");
    if (right) verified.addHeader(authorization, right.client.clientId, right.secretHash);
    return right && callerOf(right.client);
  }

  return {
    internal: (authorization) => internal(basicCredentials(authorization)),
    client(authorization) {
      if (authorization === undefined || authorization.length > maxHeaderLength) return undefined;
      const cached = verified.findHeader(authorization);
      const client = cached && clients.cachedEnabled(cached.clientId);
      if (client && isStillValid(cached, client)) return callerOf(client);
      return authenticate(authorization);
    },
    async posted(id, secret) {
      const right = await registered([{ id, secret }], "client_secret_post");
      return right && callerOf(right.client);
    },
    async publicClient(id) {
      const client = firstPartyApps ? await listing(id, "none") : undefined;
      return client && { kind: "public", clientId: client.clientId, client };
    },
    platform: (apiKey) =>
      apiKey !== undefined && isOneOf(platformSecurityApiKeys, apiKey)
        ? { kind: "platform", clientId: "platform" }
        : undefined,
  };
}
