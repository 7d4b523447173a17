/** grpc-java over cleartext HTTP/2. */
import assert from "node:assert/strict";
import { createAccount, revoke, signIn } from "../accounts.ts";
import type { Check } from "../language.ts";
import { maven } from "./maven.ts";

export const grpcCheck: Check = {
  tool: "grpc-java 1.83.0, protoc 4.36.2",
  holds:
    "compiles (the program with -Xlint:all -Werror), introspects; refusals, keepalive, limits and drain hold",
  short: false,
  async run(world) {
    const account = await createAccount(world.authUrl);
    const active = await signIn(world.authUrl, account, "backend");
    const revoked = await signIn(world.authUrl, account, "backend");
    await revoke(world.authUrl, "backend", revoked.access_token);
    const environment = {
      ACCESS_TOKEN: active.access_token,
      ACTIVE_TOKEN: active.access_token,
      REVOKED_TOKEN: revoked.access_token,
      USER_ID: account.user,
    };
    await world.withDrainingServer(async (draining) => {
      const { output } = await maven(world, {
        project: "grpc",
        goal: "test",
        properties: { protos: world.protos },
        environment: { ...environment, ...draining },
      });
      assert.ok(output.includes(`active: ${account.user}\n`), output);
    });
  },
};
