/** Node.js with nothing but fetch and jose: the resource server of docs/auth/protect-your-api/node.md. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "../../../scripts/command.ts";
import type { Language } from "../language.ts";
import { checkResourceServer } from "../resource-server.ts";

const { version: jose }: { version: string } = JSON.parse(
  readFileSync(join(ROOT, "node_modules/jose/package.json"), "utf8"),
);

export const language: Language = {
  name: "node",
  toolchain: [],
  checks: [
    {
      tool: "fetch of Node.js 24",
      holds: "protects an API by introspection",
      short: true,
      run: (world) =>
        checkResourceServer(world, "introspection", [
          "node",
          join(world.sources, "main.ts"),
          "introspection",
        ]),
    },
    {
      tool: `jose ${jose}`,
      holds: "protects an API by the key set",
      short: true,
      run: (world) =>
        checkResourceServer(world, "key set", ["node", join(world.sources, "main.ts"), "key-set"]),
    },
  ],
};
