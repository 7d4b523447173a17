/** Access tokens by Google's application default credentials: workload identity federation, and the metadata server. */
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { resetIsAvailableCache } from "gcp-metadata";
import { afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { type FcmFake, startFcmFake } from "../../../../src/development/provider-fakes/fcm/fcm.ts";
import { systemClock } from "../../../../src/platform/base/clock.ts";
import { FcmProvider } from "../../../../src/push/providers/fcm/fcm.ts";
import { accessToken } from "../../../development/provider-fakes/clients.ts";
import { http2Clients } from "../../../support/http2-clients.ts";
import { suiteCleanup } from "../../../support/suite-cleanup.ts";
import { sendOne } from "../providers-fixture.ts";

const device = `fcm-token:${"A".repeat(140)}`;
const variables = ["GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST", "HOME", "CLOUDSDK_CONFIG"] as const;
const before = Object.fromEntries(variables.map((name) => [name, process.env[name]]));

let fake: FcmFake;
let google: Server;
let port: number;
let directory: string;
/** What Google was asked, and what it says instead of a token. */
let asked: string[];
let refusal: { status: number; body: object } | undefined;

const cleanup = suiteCleanup();
beforeAll(async () => {
  fake = await startFcmFake();
  cleanup.defer(() => fake.close());
  google = createServer(async (request, response) => {
    const { status, body } = await answer(request);
    response.writeHead(status, { "content-type": "application/json", "metadata-flavor": "Google" });
    response.end(JSON.stringify(body));
  });
  google.listen(0, "127.0.0.1");
  await once(google, "listening");
  cleanup.defer(() => void google.close());
  ({ port } = google.address() as AddressInfo);
  directory = mkdtempSync(join(tmpdir(), "gatepost-google-"));
  cleanup.defer(() => rmSync(directory, { recursive: true }));
});
beforeEach(() => {
  asked = [];
  refusal = undefined;
  for (const name of variables) delete process.env[name];
  // No file of whoever runs the test.
  process.env["HOME"] = directory;
});
afterEach(() => {
  for (const name of variables) {
    if (before[name] === undefined) delete process.env[name];
    else process.env[name] = before[name];
  }
  resetIsAvailableCache();
});

/** The token exchange of workload identity federation (RFC 8693), and the metadata server. */
async function answer(request: IncomingMessage): Promise<{ status: number; body: object }> {
  const body = new URLSearchParams(await text(request));
  const path = request.url?.split("?", 1)[0] ?? "";
  asked.push(body.get("subject_token") ?? path);
  if (path === "/computeMetadata/v1/instance") return { status: 200, body: {} };
  if (refusal) return refusal;
  const token = { access_token: await accessToken(fake.credentials), token_type: "Bearer", expires_in: 3599 };
  return {
    status: 200,
    body: { ...token, issued_token_type: "urn:ietf:params:oauth:token-type:access_token" },
  };
}

function sender(): FcmProvider {
  const account = { projectId: fake.credentials.project_id };
  return new FcmProvider({ endpoint: fake.origin, account }, systemClock, http2Clients.own);
}

/** Federation with a provider whose token is in a file, as Kubernetes keeps it. */
function federate(): void {
  const subject = join(directory, "subject-token");
  writeFileSync(subject, "a-token-of-kubernetes");
  const file = join(directory, "federation.json");
  const federation = {
    type: "external_account",
    audience: "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/k",
    subject_token_type: "urn:ietf:params:oauth:token-type:jwt",
    token_url: `http://127.0.0.1:${port}/v1/token`,
    credential_source: { file: subject },
  };
  writeFileSync(file, JSON.stringify(federation));
  process.env["GOOGLE_APPLICATION_CREDENTIALS"] = file;
}

test("workload identity federation: the token of a file is exchanged, once for all messages", async () => {
  federate();
  const fcm = sender();
  for (let message = 0; message < 3; message += 1)
    expect(await sendOne(fcm, device)).toEqual({ kind: "sent" });
  expect(asked).toEqual(["a-token-of-kubernetes"]);
  fake.expireAccessTokens();
  expect(await sendOne(fcm, device), "one that is refused is replaced").toEqual({ kind: "sent" });
  expect(asked).toHaveLength(2);
  await fcm.close();
});

test("the metadata server of the machine", async () => {
  process.env["GCE_METADATA_HOST"] = `127.0.0.1:${port}`;
  const fcm = sender();
  expect(await sendOne(fcm, device)).toEqual({ kind: "sent" });
  expect(asked.at(-1)).toBe("/computeMetadata/v1/instance/service-accounts/default/token");
  await fcm.close();
});

test.each([
  [
    { status: 400, body: { error: "invalid_grant" } },
    { kind: "refused", reason: "OAuth: 400 invalid_grant" },
  ],
  [
    { status: 403, body: { error: "unauthorized_client" } },
    { kind: "refused", reason: "OAuth: 403 unauthorized_client" },
  ],
  [
    { status: 503, body: {} },
    { kind: "unavailable", reason: "OAuth: 503" },
  ],
])("Google answers %j", async (given, outcome) => {
  federate();
  refusal = given;
  const fcm = sender();
  expect(await sendOne(fcm, device)).toEqual(outcome);
  await fcm.close();
});

test("without any credentials messages wait, and an operator learns why", async () => {
  process.env["GCE_METADATA_HOST"] = "127.0.0.1:1";
  const fcm = sender();
  expect(await sendOne(fcm, device)).toEqual({
    kind: "refused",
    reason: "OAuth: no application default credentials",
  });
  await fcm.close();
});
