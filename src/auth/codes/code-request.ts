/** Who asks for a code. */
export interface CodeRequest {
  /** Canonical E.164. */
  readonly phone: string;
  readonly clientId: string;
  /** Of the caller, behind trusted proxies too; undefined if its connection is gone. */
  readonly address: string | undefined;
}

/** Why no code is sent. */
export type CodeRefusal =
  /** To such a number never: its region is not allowed, or it is no number of a mobile phone. */
  | { readonly kind: "denied" }
  /** Not now: a limit is reached, or hardly anybody uses the codes that go to numbers like this one. */
  | { readonly kind: "limited"; readonly retryAfterSeconds: number };

/** A refusal that ends in so many seconds. */
export function limited(seconds: number): CodeRefusal {
  return { kind: "limited", retryAfterSeconds: Math.max(1, Math.ceil(seconds)) };
}
