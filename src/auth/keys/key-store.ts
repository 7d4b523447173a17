/** The signing key, and the published keys, which also verify, so that keys are rotated without an outage. */
import { createPrivateKey, createPublicKey, type KeyObject } from "node:crypto";
import { entityTag } from "../../platform/openapi/entity-tag.ts";
import { type PublishedKey, publishedKey } from "../key-settings.ts";

export interface KeyStore {
  readonly current: { readonly keyId: string; readonly privateKey: KeyObject };
  readonly keySet: { readonly keys: PublishedKey[] };
  /** Quoted; changes when the keys change. */
  readonly etag: string;
  /** The key with the `kid` of a header; undefined if there is none. */
  readonly verificationKey: (kid: unknown) => KeyObject | undefined;
}

interface SigningSettings {
  readonly privateKey: string;
  readonly keyId: string;
  readonly publishedKeys: readonly PublishedKey[];
}

export function createKeyStore(signing: SigningSettings): KeyStore {
  const { keyId } = signing;
  const privateKey = createPrivateKey(signing.privateKey);
  const keys = [publishedKey(createPublicKey(privateKey), keyId), ...signing.publishedKeys];
  const byId = new Map<unknown, KeyObject>(
    keys.map((jwk) => [jwk.kid, createPublicKey({ key: { ...jwk }, format: "jwk" })]),
  );
  return {
    current: { keyId, privateKey },
    keySet: { keys },
    etag: entityTag(JSON.stringify(keys)),
    verificationKey: (kid) => byId.get(kid),
  };
}
