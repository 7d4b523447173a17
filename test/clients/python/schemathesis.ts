/** Schemathesis (https://schemathesis.io) with all of its checks, over both documents. */
import assert from "node:assert/strict";
import { randomInt, randomUUID } from "node:crypto";
import { join } from "node:path";
import type { World } from "../language.ts";
import { runIn } from "./venv.ts";

/** What is not a case of one operation: examples, and calls that follow links. */
const OPERATIONS = 10;

/**
 * Holds the server to its documents, and the documents to the server.
 * @param cases how many cases there must be at least for each document; what Schemathesis derives from a document, such
 *   as boundaries of each value, comes on top
 * @throws with what was found, and how to repeat it
 */
export async function checkWithSchemathesis(world: World, cases: number): Promise<void> {
  for (const name of ["auth", "push"]) {
    const output = await runIn(
      world,
      [
        "schemathesis",
        ...["--config-file", join(world.sources, "schemathesis", `${name}.toml`)],
        ...["run", join(world.documents, `${name}.yaml`)],
        ...["--url", name === "auth" ? world.authUrl : world.pushUrl],
        ...["--checks", "all", "--max-examples", String(Math.ceil(cases / OPERATIONS))],
        ...["--continue-on-failure", "--no-color"],
      ],
      { env: await signIn(world), timeoutSeconds: 1800 },
    );
    const [, generated = "0"] = /(\d+) generated/.exec(output) ?? [];
    assert.ok(Number(generated) >= cases, `only ${generated} cases for ${name}:\n${output.slice(-4_000)}`);
  }
}

/** Access tokens of a user and of an operator, who may send notifications. */
async function signIn({ authUrl }: World): Promise<Record<string, string>> {
  const user = `schemathesis-${randomUUID()}`;
  const phone = `+49151${String(randomInt(100_000_000)).padStart(8, "0")}`;
  const password = randomUUID();
  const json = { "content-type": "application/json" };
  await call(`${authUrl}/v1/identities`, "internal", JSON.stringify({ id: user, phone }), {
    method: "POST",
    headers: json,
  });
  await call(`${authUrl}/v1/identities/${user}/password`, "internal", JSON.stringify({ password }), {
    method: "PUT",
    headers: json,
  });
  const issue = async (client: string, grant: Record<string, string>) => {
    const response = await call(`${authUrl}/oauth2/v1/tokens`, client, new URLSearchParams(grant), {
      method: "POST",
    });
    const { access_token }: { access_token: string } = JSON.parse(response);
    return access_token;
  };
  return {
    GATEPOST_USER_TOKEN: await issue("mobile-app", { grant_type: "auth", auth_id: user }),
    GATEPOST_OPERATOR_TOKEN: await issue("backoffice", { grant_type: "password", username: user, password }),
  };
}

async function call(
  url: string,
  client: string,
  body: string | URLSearchParams,
  { method, headers = {} }: { method: string; headers?: Record<string, string> },
): Promise<string> {
  const authorization = `Basic ${btoa(`${client}:${client}-dev-secret`)}`;
  const response = await fetch(url, { method, headers: { authorization, ...headers }, body });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${url} was answered with ${response.status}: ${text}`);
  return text;
}
