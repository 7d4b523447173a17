/**
 * Resource servers as `docs/auth/protect-your-api/` shows them: each is started as a program of its own and called
 * with every kind of token.
 *
 * The program listens on 127.0.0.1 at any free port, writes `http://127.0.0.1:<port>` when it does, and answers `GET /`
 * with the `sub` of an access token that has the scope `orders`. Its environment has, beside what every client program is given,
 * `GATEPOST_ISSUER`, the `iss` of tokens, `GATEPOST_AUTH_URL`, where auth is reached, and `GATEPOST_AUDIENCE`.
 */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer, get, type IncomingMessage } from "node:http";
import { text } from "node:stream/consumers";
import { setTimeout } from "node:timers/promises";
import { decodeJwt, generateKeyPair, type JWTPayload, SignJWT } from "jose";
import { type Front, openFront } from "../support/front.ts";
import type { Program } from "../support/program.ts";
import { createAccount, revoke, signIn, signInAsJobs } from "./accounts.ts";
import type { World } from "./language.ts";

/** One of the audiences of the development client `backend`. */
const AUDIENCE = "storefront";

/** Strict, by asking auth at each request; or local, by the key set, which learns of no revocation. */
export type Protection = "introspection" | "key set";

/**
 * Starts the resource server, holds it to what the page promises, and stops it.
 * @throws if it answers otherwise, or is not listening after two minutes
 */
export async function checkResourceServer(
  world: World,
  protection: Protection,
  command: readonly [string, ...string[]],
  options: Options = {},
): Promise<void> {
  await withResourceServer(world, command, options, (url, way) =>
    checkAnswers(world, { protection, impostors: ["<html></html>", "{}"], ...options }, url, way),
  );
}

interface Options {
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
  /** What something else responds in auth's place, with status 200: nothing that says anything of a token. */
  readonly impostors?: readonly string[];
}

/**
 * Starts a resource server, which reaches auth over `way`, and stops it after the work.
 * @throws what the work throws, with what the resource server wrote
 */
export async function withResourceServer(
  world: World,
  command: readonly [string, ...string[]],
  options: Options,
  work: (url: string, way: Front) => Promise<void>,
): Promise<void> {
  const way = await openFront();
  way.leadTo(Number(new URL(world.authUrl).port));
  const program = world.start(command, {
    ...options,
    env: {
      ...options.env,
      GATEPOST_AUDIENCE: AUDIENCE,
      GATEPOST_AUTH_URL: `${way.origin}${new URL(world.authUrl).pathname}`,
    },
  });
  try {
    await work(await becomesReachable(program), way);
  } catch (error) {
    throw new Error(`${String(error)}\nThe resource server wrote:\n${program.output().slice(-4_000)}`, {
      cause: error,
    });
  } finally {
    program.child.kill("SIGTERM");
    await program.ended();
    await way.close();
  }
}

async function checkAnswers(
  world: World,
  { protection, impostors }: { protection: Protection; impostors: readonly string[] },
  url: string,
  way: Front,
): Promise<void> {
  const { user, good, revoked, ofAnotherAudience, ofAnotherScope } = await issueTokens(world.authUrl);
  const isStrict = protection === "introspection";
  const forged = await forgeTokens(world, good);
  way.leadTo(undefined);
  await expectUnavailable("a good token before auth was ever reached", url, `Bearer ${good}`);
  await expectUnavailable(
    "a forged token before auth was ever reached",
    url,
    `Bearer ${forged.get(UNKNOWN_KEY)}`,
  );
  await expectRefusal("no token before auth was ever reached", url, undefined);
  for (const body of impostors) await checkImpostor(body, url, way, good);
  way.leadTo(Number(new URL(world.authUrl).port));
  await eventually(() => expectUser("a good token", url, `Bearer ${good}`, user));
  await expectUser("the scheme in lower case", url, `bearer ${good}`, user);
  await expectUser("a token of a clock ahead", url, `Bearer ${await shifted(world, good, 50)}`, user);
  await expectRefusal("no token", url, undefined);
  await expectRefusal("the scheme alone", url, "Bearer", { status: 401, challenge: /^Bearer/ });
  await expectRefusal("another scheme", url, `Basic ${btoa(`${user}:secret`)}`);
  await expectRefusal("a token without the scope", url, `Bearer ${ofAnotherScope}`, INSUFFICIENT_SCOPE);
  await expectRefusal("a token for another audience", url, `Bearer ${ofAnotherAudience}`);
  await expectRefusal("a token of a client", url, `Bearer ${await signInAsJobs(world.authUrl)}`);
  for (const [name, token] of forged)
    if (name !== UNKNOWN_KEY || isStrict) await expectRefusal(name, url, `Bearer ${token}`);
  const unknown = await call(url, `Bearer ${forged.get(UNKNOWN_KEY)}`);
  // Where the key set may not be fetched again yet, nobody can say.
  assert([401, 503].includes(unknown.status ?? 0), `${UNKNOWN_KEY}: ${unknown.status}`);
  await expectUser("a token before its revocation", url, `Bearer ${revoked}`, user);
  await revoke(world.authUrl, "backend", revoked);
  // By the key set alone, a token is good until it expires: the page says so.
  if (isStrict) await expectRefusal("a revoked token", url, `Bearer ${revoked}`);
  else {
    await expectUser("a revoked token", url, `Bearer ${revoked}`, user);
    const farAhead = await shifted(world, good, 100);
    await expectRefusal("a token of a clock too far ahead", url, `Bearer ${farAhead}`);
  }
  await way.close();
  if (isStrict) await expectUnavailable("a good token while auth is away", url, `Bearer ${good}`);
  else await expectUser("a good token while auth is away", url, `Bearer ${good}`, user);
}

async function checkImpostor(body: string, url: string, way: Front, good: string): Promise<void> {
  let requests = 0;
  const impostor = createServer((_request, response) => {
    requests++;
    response.setHeader("content-type", "application/json").end(body);
  });
  await once(impostor.listen(0, "127.0.0.1"), "listening");
  const address = impostor.address();
  way.leadTo(typeof address === "object" ? address?.port : undefined);
  try {
    await eventually(async () => {
      await expectUnavailable(`a good token where auth says ${body}`, url, `Bearer ${good}`);
      assert(requests > 0, "auth was not asked yet");
    });
  } finally {
    impostor.closeAllConnections();
    impostor.close();
  }
}

/** The good token, as a clock would have issued it that is so many seconds ahead of the resource server's. */
function shifted(world: World, good: string, seconds: number): Promise<string> {
  const { exp = 0, ...claims } = decodeJwt(good);
  const iat = Math.floor(Date.now() / 1000) + seconds;
  return world.signToken({ ...claims, exp: exp + seconds, nbf: iat, iat }, "at+jwt");
}

/** Its `kid` is in no key set. */
const UNKNOWN_KEY = "a token signed by an unknown key";

/** What looks like the good token, and is none. */
async function forgeTokens(world: World, good: string): Promise<Map<string, string>> {
  const [header = "", payload = "", signature = ""] = good.split(".");
  const claims: JWTPayload = JSON.parse(Buffer.from(payload, "base64url").toString());
  const { kid } = JSON.parse(Buffer.from(header, "base64url").toString());
  const stranger = await generateKeyPair("RS256");
  const withoutAlgorithm = Buffer.from(JSON.stringify({ alg: "none", typ: "at+jwt" })).toString("base64url");
  const hourAgo = Math.floor(Date.now() / 1000) - 3600;
  const type = "at+jwt";
  return new Map([
    ["a garbled token", "not-a-token"],
    ["a token that lost a character", good.slice(0, -1)],
    [
      "a token with another payload",
      `${header}.${Buffer.from(JSON.stringify({ ...claims, sub: "somebody-else" })).toString("base64url")}.${signature}`,
    ],
    ["a token without a signature", `${withoutAlgorithm}.${payload}.`],
    [
      "a token signed by another key",
      await new SignJWT(claims)
        .setProtectedHeader({ alg: "RS256", typ: type, kid })
        .sign(stranger.privateKey),
    ],
    [
      UNKNOWN_KEY,
      await new SignJWT(claims)
        .setProtectedHeader({ alg: "RS256", typ: type, kid: randomUUID() })
        .sign(stranger.privateKey),
    ],
    [
      "an expired token",
      await world.signToken({ ...claims, iat: hourAgo, nbf: hourAgo, exp: hourAgo + 900 }, type),
    ],
    [
      "a token of another issuer",
      await world.signToken({ ...claims, iss: "https://somebody-else.example" }, type),
    ],
    ["a token that is no access token", await world.signToken({ ...claims, jti: randomUUID() }, "JWT")],
  ]);
}

async function issueTokens(authUrl: string) {
  const account = await createAccount(authUrl);
  const good = await signIn(authUrl, account, "backend");
  const revoked = await signIn(authUrl, account, "backend");
  const ofAnotherAudience = await signIn(authUrl, account, "backoffice");
  const ofAnotherScope = await signIn(authUrl, account, "backend", "profile");
  return {
    user: account.user,
    good: good.access_token,
    revoked: revoked.access_token,
    ofAnotherAudience: ofAnotherAudience.access_token,
    ofAnotherScope: ofAnotherScope.access_token,
  };
}

/** On a connection of its own: servers such as Python's close theirs after each answer, and a pool may be late to see it. */
async function call(url: string, authorization: string | undefined) {
  const headers = { connection: "close", ...(authorization !== undefined && { authorization }) };
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    get(url, { agent: false, headers }, resolve).on("error", reject);
  });
  const body = await text(response);
  const { "www-authenticate": challenge = "", "retry-after": retryAfter } = response.headers;
  return { status: response.statusCode, text: body, challenge, retryAfter };
}

/** 200 with the user's id. */
export async function expectUser(
  what: string,
  url: string,
  authorization: string,
  user: string,
): Promise<void> {
  const { status, text: body } = await call(url, authorization);
  assert.equal(`${status} ${body.trim()}`, `200 ${user}`, what);
}

/** RFC 6750 section 3.1. Who sends no token is told nothing of an error. */
const NO_TOKEN = { status: 401, challenge: /^Bearer(?!.*error)/ };
const INVALID_TOKEN = { status: 401, challenge: /^Bearer .*error="invalid_token"/ };
const INSUFFICIENT_SCOPE = { status: 403, challenge: /^Bearer .*error="insufficient_scope"/ };

/** A refusal with its challenge, as RFC 6750 section 3 has it. */
export async function expectRefusal(
  what: string,
  url: string,
  authorization: string | undefined,
  expected = authorization?.startsWith("Bearer ") ? INVALID_TOKEN : NO_TOKEN,
): Promise<void> {
  const { status, challenge } = await call(url, authorization);
  assert.equal(status, expected.status, what);
  assert.match(challenge, expected.challenge, what);
}

/** 503 with a time to come again: nothing is known of the token. */
async function expectUnavailable(what: string, url: string, authorization: string): Promise<void> {
  const { status, retryAfter } = await call(url, authorization);
  assert.equal(status, 503, what);
  assert.match(retryAfter ?? "no Retry-After", /^\d+$/, what);
}

/** Tries again until the check passes. @throws what it has thrown after ten seconds */
async function eventually(check: () => Promise<void>): Promise<void> {
  const deadline = Date.now() + 10_000;
  for (;;) {
    try {
      return await check();
    } catch (error) {
      if (Date.now() > deadline) throw error;
      await setTimeout(100);
    }
  }
}

async function becomesReachable(program: Program): Promise<string> {
  const deadline = Date.now() + 120_000;
  while (program.child.exitCode === null && Date.now() < deadline) {
    const url = /http:\/\/127\.0\.0\.1:\d+/.exec(program.stdout())?.[0];
    if (url !== undefined) return `${url}/`;
    await setTimeout(20);
  }
  throw new Error("it does not listen");
}
