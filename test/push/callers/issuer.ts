/** An identity provider for tests: discovery and a key set on a real port, and tokens by its keys. */
import { generateKeyPairSync, type KeyObject, type KeyPairKeyObjectResult, randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { text } from "node:stream/consumers";
import { compact, type Genuine } from "../../auth/tokens/forged-jwts.ts";

/** How it answers: as it should, not at all, with errors, or with what must not be believed. */
type Mood = "well" | "silent" | "failing" | "redirecting" | "speaking for another" | "endless";

export interface SigningKey {
  readonly kid: string;
  readonly privateKey: KeyObject;
  /** As it is published. */
  readonly jwk: Record<string, unknown>;
}

/** @param published members of the published key beside those of RS256; undefined takes one away */
export function newKey(
  kid: string,
  published: object = {},
  { privateKey, publicKey }: KeyPairKeyObjectResult = generateKeyPairSync("rsa", { modulusLength: 2048 }),
): SigningKey {
  const jwk = { ...publicKey.export({ format: "jwk" }), kid, use: "sig", alg: "RS256", ...published };
  return { kid, privateKey, jwk };
}

export interface Issuer {
  readonly issuer: string;
  /** What it publishes. */
  keys: SigningKey[];
  mood: Mood;
  /** What its introspection endpoint answers: a status and a text. */
  introspection: { readonly status: number; readonly text: string };
  /** What the endpoint was asked. */
  readonly asked: { authorization: string | undefined; body: string }[];
  /** How often its key set was asked for. */
  keySetFetches(): number;
  /** Everything that was asked for. */
  requests(): readonly string[];
  /** A good token but for the changes, signed by this key. */
  token(key: SigningKey, now: number, changes?: object, header?: object): string;
  genuine(key: SigningKey, now: () => number): Genuine;
  stop(): Promise<void>;
}

export async function startIssuer(): Promise<Issuer> {
  const requests: string[] = [];
  const json = (response: ServerResponse, value: object) =>
    response.setHeader("content-type", "application/json").end(JSON.stringify(value));
  const server = createServer((request, response) => {
    const path = request.url ?? "";
    requests.push(path);
    const { mood } = self;
    if (mood === "silent") return;
    if (mood === "failing") return void response.writeHead(500).end("{}");
    if (mood === "endless") return void flood(response);
    if (mood === "redirecting") {
      response.writeHead(307, { location: `${issuer}/elsewhere${path.endsWith("keys") ? "/keys" : ""}` });
      return void response.end();
    }
    if (path.endsWith("introspect")) return void introspect(request, response);
    if (path.endsWith("keys")) return void json(response, { keys: self.keys.map(({ jwk }) => jwk) });
    const speaksFor = mood === "speaking for another" ? "https://id.example.com" : issuer;
    const introspection_endpoint = `${issuer}/introspect`;
    json(response, { issuer: speaksFor, jwks_uri: `${issuer}/keys`, introspection_endpoint });
  });
  async function introspect(request: IncomingMessage, response: ServerResponse): Promise<void> {
    self.asked.push({ authorization: request.headers.authorization, body: await text(request) });
    response.writeHead(self.introspection.status, { "content-type": "application/json" });
    response.end(self.introspection.text);
  }
  await once(server.listen(0, "127.0.0.1"), "listening");
  const address = server.address();
  if (typeof address !== "object" || address === null) throw new Error("not listening");
  const { port } = address;
  const issuer = `http://127.0.0.1:${port}/api/auth`;
  const claims = (now: number) => {
    const seconds = Math.floor(now / 1000);
    return {
      iss: issuer,
      sub: "u-1",
      aud: ["app"],
      exp: seconds + 900,
      nbf: seconds,
      iat: seconds,
      jti: randomUUID(),
      client_id: "app",
    };
  };
  const self: Issuer = {
    issuer,
    keys: [],
    mood: "well",
    introspection: { status: 200, text: '{"active":true}' },
    asked: [],
    keySetFetches: () => requests.filter((path) => path.endsWith("keys")).length,
    requests: () => requests,
    token({ kid, privateKey }, now, changes = {}, header = {}) {
      const complete = { alg: "RS256", typ: "at+jwt", kid, ...header };
      return compact(complete, { ...claims(now), ...changes }, privateKey, complete.alg);
    },
    genuine: ({ kid, privateKey }, now) => ({
      privateKey,
      header: { alg: "RS256", typ: "at+jwt", kid },
      claims: () => claims(now()),
      listener: `http://127.0.0.1:${port}/listener`,
    }),
    async stop() {
      server.closeAllConnections();
      await once(server.close(), "close");
    },
  };
  return self;
}

function flood(response: ServerResponse): void {
  const more = () => {
    while (!response.destroyed && response.write("[".repeat(65_536)));
  };
  response.on("drain", more);
  more();
}
