/** Schemathesis (https://schemathesis.io) with all of its checks, over both documents. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { createAccount, signIn } from "../accounts.ts";
import type { World } from "../language.ts";
import { runIn } from "./venv.ts";

/** Schemathesis counts for each operation; each document has more of them than this. */
const OPERATIONS = 10;

export interface Cases {
  /** How many there must be at least for each document; what Schemathesis derives from one comes on top. */
  readonly atLeast: number;
  /** The same in each run: what fails in continuous integration fails again on a desk, and not by chance. */
  readonly repeatable: boolean;
}

/**
 * Holds the server to its documents, and the documents to the server.
 * @throws with what was found, and how to repeat it
 */
export async function checkWithSchemathesis(world: World, { atLeast, repeatable }: Cases): Promise<void> {
  const configuration = join(world.sources, "schemathesis");
  const optionsNow = async () => ({
    cwd: configuration,
    env: await accessTokens(world),
    timeoutSeconds: 1800,
  });
  await runIn(world, ["python", "refusals.py"], await optionsNow());
  for (const name of ["auth", "push"]) {
    const output = await runIn(
      world,
      [
        "schemathesis",
        ...["--config-file", join(configuration, `${name}.toml`)],
        ...["run", join(world.documents, `${name}.yaml`)],
        ...["--url", name === "auth" ? world.authUrl : world.pushUrl],
        ...["--checks", "all", "--max-examples", String(Math.ceil(atLeast / OPERATIONS))],
        ...(repeatable ? ["--generation-deterministic"] : []),
        ...["--continue-on-failure", "--no-color"],
      ],
      await optionsNow(),
    );
    const [, generated = "0"] = /(\d+) generated/.exec(output) ?? [];
    assert.ok(Number(generated) >= atLeast, `only ${generated} cases for ${name}:\n${output.slice(-4_000)}`);
  }
}

/** Access tokens of one user: as such, and as an operator, who may send notifications. */
async function accessTokens({ authUrl }: World): Promise<Record<string, string>> {
  const account = await createAccount(authUrl);
  return {
    GATEPOST_USER_TOKEN: (await signIn(authUrl, account, "backend")).access_token,
    GATEPOST_OPERATOR_TOKEN: (await signIn(authUrl, account, "backoffice")).access_token,
  };
}
