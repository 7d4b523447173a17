/**
 * Push subscriptions, as a browser makes them. None is stored: its keys are derived from a seed and its id,
 * and the id says itself for whom it was made. So they outlive a restart, and a million costs no memory.
 */
import { createECDH, createHmac, hkdfSync, randomBytes } from "node:crypto";
import { LRUCache } from "lru-cache";

/** Keys that are kept at hand; deriving them costs a multiplication on the curve. */
const maxKeysAtHand = 20_000;
/** Of an HMAC in an id, base64url. */
const tagLength = 11;

/** What a browser's `PushSubscription.toJSON()` gives. */
export interface PushSubscription {
  readonly endpoint: string;
  readonly keys: {
    /** The uncompressed point, base64url. */
    readonly p256dh: string;
    /** 16 bytes, base64url. */
    readonly auth: string;
  };
}

/** The browser's side of the keys. */
export interface SubscriptionKeys {
  readonly privateKey: Buffer;
  readonly publicKey: Buffer;
  readonly auth: Buffer;
}

export interface Subscriptions {
  /**
   * The id of a new subscription, which is the last part of its endpoint.
   * @param name begins the id; random unless given
   * @param applicationServerKey only its owner may send to it
   */
  subscribe(name: string | undefined, applicationServerKey: string): string;
  /** Whether it was made here. */
  isKnown(id: string): boolean;
  /** Whether it was made for that key. */
  isFor(id: string, applicationServerKey: string): boolean;
  keys(id: string): SubscriptionKeys;
}

/** Those that belong to a seed. */
export function createSubscriptions(seed: Buffer): Subscriptions {
  const atHand = new LRUCache<string, SubscriptionKeys>({ max: maxKeysAtHand });

  const tag = (text: string) =>
    createHmac("sha256", seed).update(text).digest("base64url").slice(0, tagLength);
  const nameTag = (name: string) => tag(`name ${name}`);
  const keyTag = (name: string, key: string) => tag(`key ${name} ${key}`);

  function derive(id: string): SubscriptionKeys {
    const bytes = (info: string, length: number) => Buffer.from(hkdfSync("sha256", seed, id, info, length));
    const ecdh = createECDH("prime256v1");
    const privateKey = bytes("p256dh", 32);
    // One in 2^32 is no private key, which throws: so rare that the request may fail.
    ecdh.setPrivateKey(privateKey);
    return { privateKey, publicKey: ecdh.getPublicKey(), auth: bytes("auth", 16) };
  }

  return {
    subscribe(name = randomBytes(12).toString("base64url"), applicationServerKey) {
      return `${name}.${nameTag(name)}.${keyTag(name, applicationServerKey)}`;
    },
    isKnown(id) {
      const [name, known, forKey] = id.split(".");
      return name !== undefined && forKey?.length === tagLength && known === nameTag(name);
    },
    isFor(id, applicationServerKey) {
      const [name = "", , forKey] = id.split(".");
      return forKey === keyTag(name, applicationServerKey);
    },
    keys(id) {
      const kept = atHand.get(id);
      if (kept) return kept;
      const keys = derive(id);
      atHand.set(id, keys);
      return keys;
    },
  };
}
