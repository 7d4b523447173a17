/** Users of the running server, and their tokens, for checks that are about something else. */
import { randomInt, randomUUID } from "node:crypto";

export interface Account {
  /** The id of the identity. */
  readonly user: string;
  readonly password: string;
}

export interface Tokens {
  readonly access_token: string;
  readonly refresh_token: string;
}

/** Creates an identity with a password. */
export async function createAccount(authUrl: string): Promise<Account> {
  const user = `u-${randomUUID()}`;
  const password = `correct horse ${user}`;
  const phone = `+1202${randomInt(2_000_000, 10_000_000)}`;
  await sendJson("POST", `${authUrl}/v1/identities`, { id: user, phone });
  await sendJson("PUT", `${authUrl}/v1/identities/${user}/password`, { password });
  return { user, password };
}

/** Signs the account in at a development client, by its password. @param scope unless given, all of the client's */
export async function signIn(
  authUrl: string,
  { user, password }: Account,
  client: "backend" | "backoffice",
  scope?: string,
): Promise<Tokens> {
  const grant = { grant_type: "password", username: user, password, ...(scope && { scope }) };
  return JSON.parse(await sendForm(`${authUrl}/oauth2/v1/tokens`, client, grant));
}

/** @returns the access token of a client that acts for no user */
export async function signInAsJobs(authUrl: string): Promise<string> {
  const form = { grant_type: "client_credentials" };
  const { access_token }: Tokens = JSON.parse(await sendForm(`${authUrl}/oauth2/v1/tokens`, "jobs", form));
  return access_token;
}

/** @param client the one that the token was issued to, or the internal client */
export async function revoke(authUrl: string, client: string, token: string): Promise<void> {
  await sendForm(`${authUrl}/oauth2/v1/revoke`, client, { token });
}

/** Asks as the client `api`. */
export async function isActive(authUrl: string, token: string): Promise<boolean> {
  const { active } = JSON.parse(await sendForm(`${authUrl}/oauth2/v1/introspect`, "api", { token }));
  return active === true;
}

/** The credentials of a development client, as an Authorization header. */
const basic = (client: string) => `Basic ${btoa(`${client}:${client}-dev-secret`)}`;

async function sendJson(method: string, url: string, body: object): Promise<string> {
  const headers = { authorization: basic("internal"), "content-type": "application/json" };
  return expectOk(await fetch(url, { method, headers, body: JSON.stringify(body) }));
}

async function sendForm(url: string, client: string, form: Record<string, string>): Promise<string> {
  const headers = { authorization: basic(client) };
  return expectOk(await fetch(url, { method: "POST", headers, body: new URLSearchParams(form) }));
}

async function expectOk(response: Response): Promise<string> {
  const text = await response.text();
  if (!response.ok) throw new Error(`${response.url} answered ${response.status}: ${text}`);
  return text;
}
