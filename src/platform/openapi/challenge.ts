/** The challenge for a caller that sends no credentials, or wrong ones: by the security scheme of the document. */
import type { ContractOperation } from "./document.ts";

interface Challenge {
  /** Ends the sentence of a 401. */
  readonly advice: string;
  /** `WWW-Authenticate` of a 401 or 403; undefined: none. @param authorization the header that was sent */
  header(status: number, authorization: string | undefined): string | undefined;
}

const basic = (realm: string): Challenge => ({
  advice: "Send the client's id and secret in the Authorization header, scheme Basic.",
  header: (status) => (status === 401 ? `Basic realm="${realm}", charset="UTF-8"` : undefined),
});

/** RFC 6750 section 3: a request without a token gets no error code. */
const bearer = (realm: string): Challenge => ({
  advice: "Send an access token in the Authorization header, scheme Bearer.",
  header(status, authorization) {
    const challenge = `Bearer realm="${realm}"`;
    if (status === 403) return `${challenge}, error="insufficient_scope"`;
    if (status !== 401) return undefined;
    return /^bearer(?:\s|$)/i.test(authorization ?? "") ? `${challenge}, error="invalid_token"` : challenge;
  },
});

/** The challenge of an operation; undefined for a public one. @throws if no scheme is Basic or Bearer with a realm */
export function challengeOf({
  id,
  schemes,
}: Pick<ContractOperation, "id" | "schemes">): Challenge | undefined {
  if (schemes.length === 0) return undefined;
  for (const { type, scheme, "x-realm": realm } of schemes) {
    if (type !== "http" || realm === undefined) continue;
    if (scheme === "basic") return basic(realm);
    if (scheme === "bearer") return bearer(realm);
  }
  throw new Error(`${id}: none of its security schemes is Basic or Bearer with an x-realm`);
}
