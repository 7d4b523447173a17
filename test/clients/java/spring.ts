/** Spring Boot: the resource server of docs/auth/protect-your-api/java.md, and the OAuth client. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { decodeJwt } from "jose";
import { createAccount, isActive, signIn } from "../accounts.ts";
import type { Check, World } from "../language.ts";
import { shortLived } from "../maven.ts";
import { checkResourceServer, expectRefusal, expectUser, withResourceServer } from "../resource-server.ts";
import { maven } from "./maven.ts";

/** Starts the program with a profile, on any free port. */
type Start = (profile: string) => [string, ...string[]];

/** Builds the program with a version of Spring Boot. */
async function build(world: World, version: string): Promise<Start> {
  const properties = { "spring-boot.version": version };
  const { build: folder } = await maven(world, {
    project: "spring",
    goal: "package",
    output: `spring-${version}`,
    properties,
  });
  const jar = join(folder, "api-1.jar");
  const options = ["--server.address=127.0.0.1", "--server.port=0"];
  return (profile) => ["java", ...shortLived, "-jar", jar, `--spring.profiles.active=${profile}`, ...options];
}

/** The client finds the endpoints by `issuer-uri`, and gets a pair of tokens that auth calls active. */
async function renewTokens(world: World, start: Start): Promise<void> {
  const account = await createAccount(world.authUrl);
  const { refresh_token } = await signIn(world.authUrl, account, "backend");
  const output = await world.run(start("client"), { env: { REFRESH_TOKEN: refresh_token } });
  const [, token = ""] = /^renewed (\S+)$/m.exec(output) ?? [];
  assert.ok(await isActive(world.authUrl, token), "the renewed token is active");
}

/** With nothing but `issuer-uri`, Spring takes tokens of the type JWT and refuses at+jwt: hence the bean. */
async function checkIssuerUri(world: World, start: Start): Promise<void> {
  const account = await createAccount(world.authUrl);
  const { access_token } = await signIn(world.authUrl, account, "backend");
  const ofTypeJwt = await world.signToken(decodeJwt(access_token), "JWT");
  await withResourceServer(world, start("issuer-uri"), {}, async (url) => {
    await expectRefusal("at+jwt", url, `Bearer ${access_token}`);
    await expectUser("JWT", url, `Bearer ${ofTypeJwt}`, account.user);
  });
}

/** @param version of Spring Boot */
export function springCheck(version: string, short: boolean): Check {
  return {
    tool: `Spring Boot ${version}`,
    holds: "protects an API by introspection and by the key set; its client renews tokens by issuer-uri",
    short,
    async run(world) {
      const start = await build(world, version);
      // Spring takes an introspection without `active` for one of an inactive token.
      const options = { impostors: ["<html></html>"] };
      await checkResourceServer(world, "introspection", start("introspection"), options);
      await checkResourceServer(world, "key set", start("key-set"), options);
      await renewTokens(world, start);
      await checkIssuerUri(world, start);
    },
  };
}
