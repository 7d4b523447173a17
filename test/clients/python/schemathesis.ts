/** Schemathesis (https://schemathesis.io) with all of its checks, over both documents. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { createAccount, signIn } from "../accounts.ts";
import type { World } from "../language.ts";
import { runIn } from "./venv.ts";

/** Schemathesis counts for each operation; each document has more of them than this. */
const OPERATIONS = 10;

/**
 * Holds the server to its documents, and the documents to the server.
 * @param cases how many cases there must be at least for each document; what Schemathesis derives from a document, such
 *   as boundaries of each value, comes on top
 * @throws with what was found, and how to repeat it
 */
export async function checkWithSchemathesis(world: World, cases: number): Promise<void> {
  const configuration = join(world.sources, "schemathesis");
  for (const name of ["auth", "push"]) {
    const output = await runIn(
      world,
      [
        "schemathesis",
        ...["--config-file", join(configuration, `${name}.toml`)],
        ...["run", join(world.documents, `${name}.yaml`)],
        ...["--url", name === "auth" ? world.authUrl : world.pushUrl],
        ...["--checks", "all", "--max-examples", String(Math.ceil(cases / OPERATIONS))],
        ...["--continue-on-failure", "--no-color"],
      ],
      { cwd: configuration, env: await accessTokens(world), timeoutSeconds: 1800 },
    );
    const [, generated = "0"] = /(\d+) generated/.exec(output) ?? [];
    assert.ok(Number(generated) >= cases, `only ${generated} cases for ${name}:\n${output.slice(-4_000)}`);
  }
}

/** Access tokens of one user: as such, and as an operator, who may send notifications. */
async function accessTokens({ authUrl }: World): Promise<Record<string, string>> {
  const account = await createAccount(authUrl);
  return {
    GATEPOST_USER_TOKEN: (await signIn(authUrl, account, "mobile-app")).access_token,
    GATEPOST_OPERATOR_TOKEN: (await signIn(authUrl, account, "backoffice")).access_token,
  };
}
