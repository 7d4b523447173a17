/** Generates credentials in the format of the providers, for senders to the fakes. */
import { createECDH, generateKeyPair, generateKeyPairSync, randomBytes } from "node:crypto";
import { promisify } from "node:util";

/** The JSON file of a Google service account. */
export interface ServiceAccount {
  readonly type: "service_account";
  readonly project_id: string;
  readonly private_key_id: string;
  /** PEM, PKCS #8, RSA. */
  readonly private_key: string;
  readonly client_email: string;
  readonly client_id: string;
  /** The OAuth token endpoint, and the `aud` of the assertion. */
  readonly token_uri: string;
}

/** A key for APNs, as Apple's developer account shows it. */
export interface ApnsCredentials {
  /** 10 characters, the `kid` of provider tokens. */
  readonly keyId: string;
  /** 10 characters, the `iss` of provider tokens. */
  readonly teamId: string;
  /** The app's bundle id. */
  readonly topic: string;
  /** The .p8 file: PEM, PKCS #8, P-256. */
  readonly privateKey: string;
}

/** An application server's identity for Web Push. */
export interface VapidCredentials {
  /** The uncompressed point, base64url. */
  readonly publicKey: string;
  /** d, base64url. */
  readonly privateKey: string;
  /** `sub` of the VAPID token. */
  readonly subject: string;
}

/** A new service account, without `token_uri`, which depends on the port of the fake. */
export async function newServiceAccount(projectId: string): Promise<Omit<ServiceAccount, "token_uri">> {
  const { privateKey } = await promisify(generateKeyPair)("rsa", { modulusLength: 2048 });
  return {
    type: "service_account",
    project_id: projectId,
    private_key_id: randomBytes(20).toString("hex"),
    private_key: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
    client_email: `gatepost@${projectId}.iam.gserviceaccount.com`,
    client_id: String(randomBytes(6).readUIntBE(0, 6)).padStart(21, "1"),
  };
}

/** A new key for APNs, with a team and an app that do not exist. */
export function newApnsCredentials(): ApnsCredentials {
  const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  return {
    keyId: "FAKEKEY001",
    teamId: "FAKETEAM01",
    topic: "com.example.app",
    privateKey: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
  };
}

/** New VAPID keys. */
export function newVapidCredentials(): VapidCredentials {
  const ecdh = createECDH("prime256v1");
  ecdh.generateKeys();
  return {
    publicKey: ecdh.getPublicKey("base64url"),
    // Node drops leading zeros of the private key; `d` always has 32 bytes (RFC 7518 section 6.2.2.1).
    privateKey: Buffer.concat([Buffer.alloc(32), ecdh.getPrivateKey()])
      .subarray(-32)
      .toString("base64url"),
    subject: "mailto:push@example.com",
  };
}
