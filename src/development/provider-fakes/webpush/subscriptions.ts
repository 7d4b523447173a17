/**
 * Push subscriptions, as a browser creates them. They are not stored: the keys are derived from a seed and the id,
 * and the id contains a tag of the application server key. So they outlive a restart, and a million of them takes
 * no memory.
 */
import { createECDH, createHmac, hkdfSync, randomBytes } from "node:crypto";
import { LRUCache } from "lru-cache";

/** Keys that are cached, because deriving them takes a multiplication on the curve. */
const maxCachedKeys = 20_000;
/** Characters of an HMAC in an id, base64url. */
const tagLength = 11;

/** The result of a browser's `PushSubscription.toJSON()`. */
export interface PushSubscription {
  readonly endpoint: string;
  readonly keys: {
    /** The uncompressed point, base64url. */
    readonly p256dh: string;
    /** 16 bytes, base64url. */
    readonly auth: string;
  };
}

/** The keys of the browser, the private one included. */
export interface SubscriptionKeys {
  readonly privateKey: Buffer;
  readonly publicKey: Buffer;
  readonly auth: Buffer;
}

export interface Subscriptions {
  /**
   * Creates a subscription. Returns its id, which is the last part of its endpoint.
   * @param name begins the id; random by default
   * @param applicationServerKey of the only sender that may use the subscription
   */
  subscribe(name: string | undefined, applicationServerKey: string): string;
  /** Whether the subscription was created with this seed. */
  isKnown(id: string): boolean;
  /** Whether the subscription was created for that key. */
  isFor(id: string, applicationServerKey: string): boolean;
  keys(id: string): SubscriptionKeys;
}

/** The subscriptions of a seed. */
export function createSubscriptions(seed: Buffer): Subscriptions {
  const cachedKeys = new LRUCache<string, SubscriptionKeys>({ max: maxCachedKeys });

  const tag = (text: string) =>
    createHmac("sha256", seed).update(text).digest("base64url").slice(0, tagLength);
  const nameTag = (name: string) => tag(`name ${name}`);
  const keyTag = (name: string, key: string) => tag(`key ${name} ${key}`);

  function derive(id: string): SubscriptionKeys {
    const bytes = (info: string, length: number) => Buffer.from(hkdfSync("sha256", seed, id, info, length));
    const ecdh = createECDH("prime256v1");
    const privateKey = bytes("p256dh", 32);
    // Throws for one in 2^32, whose bytes are no valid private key: rare enough to let the request fail.
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
      const kept = cachedKeys.get(id);
      if (kept) return kept;
      const keys = derive(id);
      cachedKeys.set(id, keys);
      return keys;
    },
  };
}
