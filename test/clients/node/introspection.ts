/** Strict: auth is asked about each token. */
import { Unavailable } from "./protect.ts";

const { GATEPOST_AUTH_URL = "", GATEPOST_API_SECRET = "", GATEPOST_AUDIENCE = "" } = process.env;
const credentials = Buffer.from(`api:${GATEPOST_API_SECRET}`).toString("base64");

interface Introspection {
  active: boolean;
  sub?: string;
  aud?: string[];
}

/** The id of the user that the token was issued to, or undefined if the token is not good. */
export async function verify(token: string): Promise<string | undefined> {
  const result = await introspect(token).catch((cause) => {
    throw new Unavailable("auth cannot be asked", { cause });
  });
  return result.active && result.aud?.includes(GATEPOST_AUDIENCE) ? result.sub : undefined;
}

async function introspect(token: string): Promise<Introspection> {
  const response = await fetch(`${GATEPOST_AUTH_URL}/oauth2/v1/introspect`, {
    method: "POST",
    headers: { authorization: `Basic ${credentials}` },
    body: new URLSearchParams({ token }),
    signal: AbortSignal.timeout(2_000),
  });
  if (!response.ok) throw new Error(`introspection was answered with ${response.status}`);
  return response.json() as Promise<Introspection>;
}
