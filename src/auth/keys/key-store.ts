/**
 * The signing key and the published keys. One key signs. The published keys (the next, the previous) also
 * verify, so that keys can be rotated without an outage. The settings have checked all keys.
 */
import { createPrivateKey, createPublicKey, type KeyObject } from "node:crypto";
import { type CryptoKey, exportJWK, importJWK } from "jose";
import { entityTag } from "../../platform/openapi/entity-tag.ts";
import type { PublishedKey } from "../key-settings.ts";

/** A public key of the key set (RFC 7517). */
interface PublicJwk {
  kty: "RSA";
  kid: string;
  use: "sig";
  alg: "RS256";
  n: string;
  e: string;
}

export interface KeyStore {
  readonly current: { readonly keyId: string; readonly privateKey: KeyObject };
  readonly keySet: { readonly keys: PublicJwk[] };
  /** Quoted; changes when the keys change. */
  readonly etag: string;
  /** The key with the `kid` of a header; undefined if there is none. */
  readonly verificationKey: (kid: unknown) => CryptoKey | undefined;
}

interface SigningSettings {
  readonly privateKey: string;
  readonly keyId: string;
  readonly publishedKeys: readonly PublishedKey[];
}

async function publicJwk(key: KeyObject, kid: string): Promise<PublicJwk> {
  const { n, e } = await exportJWK(key);
  if (n === undefined || e === undefined) throw new Error(`key ${kid} is not an RSA key`);
  return { kty: "RSA", kid, use: "sig", alg: "RS256", n, e };
}

async function verificationKey(jwk: PublicJwk): Promise<CryptoKey> {
  const key = await importJWK(jwk, "RS256");
  if (key instanceof Uint8Array) throw new Error(`key ${jwk.kid} is not an RSA key`);
  return key;
}

export async function createKeyStore(signing: SigningSettings): Promise<KeyStore> {
  const privateKey = createPrivateKey(signing.privateKey);
  const publicKeys = new Map([[signing.keyId, createPublicKey(privateKey)]]);
  for (const jwk of signing.publishedKeys) {
    publicKeys.set(jwk.kid, createPublicKey({ key: { ...jwk }, format: "jwk" }));
  }
  const keys = await Promise.all([...publicKeys].map(([kid, key]) => publicJwk(key, kid)));
  // Imported once, because jose would otherwise convert the key on every use.
  const imported = new Map(
    await Promise.all(keys.map(async (jwk) => [jwk.kid, await verificationKey(jwk)] as const)),
  );
  return {
    current: { keyId: signing.keyId, privateKey },
    keySet: { keys },
    etag: entityTag(JSON.stringify(keys)),
    verificationKey: (kid) => (typeof kid === "string" ? imported.get(kid) : undefined),
  };
}
