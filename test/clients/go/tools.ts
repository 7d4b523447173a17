/** Programs that need no code and no protos: server reflection tells them the contract. */
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { createAccount, signIn } from "../accounts.ts";
import type { Check, World } from "../language.ts";

const METHOD = "auth.v1.IntrospectionService.Introspect";
const authorization = `Basic ${btoa("api:api-dev-secret")}`;

/** @returns the program, which is compiled unless this version of it is there */
async function install(world: World, module: string, version: string): Promise<string> {
  const folder = join(world.build, "tools", version);
  const program = join(folder, module.slice(module.lastIndexOf("/") + 1));
  if (!existsSync(program)) {
    await world.run(["go", "install", `${module}@v${version}`], { env: { GOBIN: folder, CGO_ENABLED: "0" } });
  }
  return program;
}

const grpcurl = "1.9.4";
const ghz = "0.121.0";

export const grpcurlCheck: Check = {
  tool: `grpcurl ${grpcurl}`,
  holds: "lists, describes and calls by server reflection",
  short: false,
  async run(world) {
    const program = await install(world, "github.com/fullstorydev/grpcurl/cmd/grpcurl", grpcurl);
    const ask = (...args: string[]) => world.run([program, "-plaintext", ...args]);
    const services = (await ask(world.grpcAddress, "list")).trim().split("\n");
    assert.deepEqual(services, [
      "auth.v1.IntrospectionService",
      "grpc.health.v1.Health",
      "push.v1.DeliveryService",
      "push.v1.NotificationService",
    ]);
    assert.match(await ask(world.grpcAddress, "describe", METHOD), /^rpc Introspect \( \.auth\.v1\./m);
    const account = await createAccount(world.authUrl);
    const { access_token: token } = await signIn(world.authUrl, account, "backend");
    const request = ["-H", `authorization: ${authorization}`, "-d", JSON.stringify({ token })] as const;
    const { active, sub } = JSON.parse(await ask(...request, world.grpcAddress, METHOD));
    assert.deepEqual({ active, sub }, { active: true, sub: account.user });
  },
};

export const ghzCheck: Check = {
  tool: `ghz ${ghz}`,
  holds: "gets 100 of 100 calls, ten at a time, by server reflection",
  short: false,
  async run(world) {
    const program = await install(world, "github.com/bojand/ghz/cmd/ghz", ghz);
    const load = ["--insecure", "--call", METHOD, "--total", "100", "--concurrency", "10"] as const;
    const request = ["--data", '{"token":"none"}', "--metadata", JSON.stringify({ authorization })] as const;
    const output = await world.run([program, ...load, ...request, "--format", "json", world.grpcAddress]);
    assert.deepEqual(JSON.parse(output).statusCodeDistribution, { OK: 100 });
  },
};
