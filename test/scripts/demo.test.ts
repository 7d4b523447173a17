/**
 * `npm run demo` passes on every database; what it saw of secrets is afterwards nowhere in the database nor in
 * the log; and it is no rubber stamp: a server that answers against the contract makes it fail.
 */
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { beforeAll, describe, expect, it } from "vitest";
import { authApi, internal } from "../support/auth-api.ts";
import { type AuthStore, createAuthStore, dump } from "../support/auth-store.ts";
import { type Passing, startProxy } from "../support/changing-proxy.ts";
import { killAll, type Program, startNode } from "../support/program.ts";
import { type PushProcess, spawnPushServer } from "../support/push-server.ts";
import { findSecrets, type Secret, secretsOf } from "../support/secret-search.ts";
import { backends } from "../support/servers.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";

const summary = /^\d+ steps, all as the contract says\n$/;

function startDemo(server: { origin: string; grpc: string }, env: Record<string, string> = {}): Program {
  return startNode("scripts/demo.ts", { GATEPOST_URL: server.origin, GATEPOST_GRPC: server.grpc, ...env });
}

function lastLine(text: string): string {
  return `${text.trimEnd().split("\n").at(-1)}\n`;
}

suiteCleanup().defer(killAll);

describe.each(backends)("the demo on %s", (backend) => {
  let store: AuthStore;
  let server: PushProcess;
  let directory: string;

  const cleanup = suiteCleanup();
  beforeAll(async () => {
    directory = mkdtempSync(join(tmpdir(), "gatepost-demo-"));
    cleanup.defer(() => rmSync(directory, { recursive: true, force: true }));
    store = await createAuthStore(backend);
    cleanup.defer(() => store.drop());
    // Its issuer is its own address, where the push service finds it.
    const { OAUTH_SERVER_ISSUER: _none, ...env } = store.env;
    server = await spawnPushServer(backend, { env: { ...env, LOGGING_LEVEL: "trace" } });
    cleanup.defer(() => server.stop());
  });

  it("passes, also several at once, and leaves no secret in the database or the log", async () => {
    // The first screen shows the credentials of development mode; what comes after it is the log.
    while (!server.logs().includes("INFO: Ready")) await setTimeout(20);
    const start = server.logs().length;
    const transcript = join(directory, "transcript");
    const demos = [0, 1].map(() => startDemo(server, { DEMO_TRANSCRIPT: transcript }));
    const dumps = backend === "PostgreSQL" ? dumpWhile(store, demos) : [];
    for (const demo of demos) {
      expect(await demo.ended(), demo.output()).toBe(0);
      expect(lastLine(demo.stdout())).toMatch(summary);
      expect(demo.stderr()).toBe("");
    }
    const secrets = secretsOf(readFileSync(transcript, "utf8"));
    expect(kindsOf(secrets)).toEqual([
      "access_token",
      "auth_session",
      "authorization_code",
      "client_secret",
      "code_verifier",
      "otp_code",
      "otp_proof",
      "password",
      "refresh_token",
    ]);

    const logs = server.logs().slice(start);
    const [messages, lines] = partition(logs.split("\n"), (line) => /your code is/i.test(line));
    expect(messages).toHaveLength(6);
    expect(lines.length).toBeGreaterThan(10);
    expect(findSecrets(secrets, Buffer.from(lines.join("\n")))).toEqual([]);

    const whileRunning = await dumps;
    await stop(server);
    const left = await store.read(dump);
    const ids = demos.map((demo) => /"id": "(demo-\w+)"/.exec(demo.stdout())?.[1] ?? "none");
    for (const id of ids)
      expect(left, "the authorizations of the demo are there to be looked at").toContain(id);
    expect(findSecrets(secrets, Buffer.from([...whileRunning, left].join("\n")))).toEqual([]);
    if (backend === "PGlite") {
      const files = filesOf(join(store.env["DATA_DIR"] ?? "", "database"));
      const bytes = Buffer.concat(files.map((file) => readFileSync(file)));
      expect(bytes.includes(ids[0] ?? ""), "what was written is in the files").toBe(true);
      expect(findSecrets(secrets, bytes)).toEqual([]);
    }
  });
});

/** Ends the process and leaves its data. */
async function stop({ child }: PushProcess): Promise<void> {
  const gone = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGTERM");
  await gone;
}

/** Dumps of the database again and again, for as long as the demos run. */
async function dumpWhile(store: AuthStore, demos: readonly Program[]): Promise<string[]> {
  const dumps: string[] = [];
  let running = demos.length;
  for (const demo of demos) {
    void demo.ended().then(() => {
      running -= 1;
    });
  }
  await store.read(async (query) => {
    while (running > 0) {
      dumps.push(await dump(query));
      await setTimeout(20);
    }
  });
  return dumps;
}

function kindsOf(secrets: readonly Secret[]): string[] {
  return [...new Set(secrets.map(({ kind }) => kind))].sort();
}

function partition<T>(all: readonly T[], test: (one: T) => boolean): [T[], T[]] {
  return [all.filter(test), all.filter((one) => !test(one))];
}

function filesOf(directory: string): string[] {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
}

describe("a demo that must not pass", () => {
  let server: PushProcess;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    server = await spawnPushServer("PGlite");
    cleanup.defer(() => server.stop());
  });

  const isIntrospection = ({ path }: Passing) => path.endsWith("/introspect");

  it.each<[string, (answer: Passing) => void, RegExp]>([
    [
      "a field that the contract does not have",
      (answer) => {
        if (isIntrospection(answer)) answer.body = answer.body.replace("{", '{"extra":1,');
      },
      /expected +a body as the schema of introspectToken 200 says.*got.*extra/s,
    ],
    [
      "a status that the contract does not have",
      (answer) => {
        if (isIntrospection(answer)) answer.status = 203;
      },
      /expected +one of the statuses that introspectToken declares: 200.*got +status 203/s,
    ],
    [
      "a media type that the contract does not have",
      (answer) => {
        if (answer.status === 404) answer.contentType = "application/json";
      },
      /expected +media type application\/problem\+json.*got +application\/json/s,
    ],
    [
      "a token that is active after its revocation, which the contract cannot tell",
      stillActive(),
      /expected.*"active":false.*got.*"active":true/s,
    ],
  ])("with %s", async (_what, change, message) => {
    const proxy = await startProxy(server.origin, change);
    try {
      const demo = startDemo({ origin: proxy.origin, grpc: server.grpc });
      expect(await demo.ended(), demo.output()).toBe(1);
      expect(demo.stderr()).toMatch(message);
      expect(demo.stdout()).not.toMatch(/all as the contract says/);
      const id = /"id": "(demo-\w+)"/.exec(demo.stdout())?.[1] ?? "";
      const api = authApi(server.authBase);
      const { status } = await api.call("getIdentity", { as: internal, path: { id } });
      expect(status, "the demo has cleaned up").toBe(404);
    } finally {
      await proxy.close();
    }
  });

  it("because no server is there: it says what to run", async () => {
    const demo = startDemo({ origin: "http://127.0.0.1:9", grpc: "127.0.0.1:9" });
    expect(await demo.ended()).toBe(1);
    expect(demo.stderr()).toMatch(/No server answers at http:\/\/127\.0\.0\.1:9 .*npm start\n/s);
  });

  it("because another server is there: it says so, and what to run", async () => {
    const other = createServer((_request, response) => response.end("<p>It works!</p>"));
    other.listen(0, "127.0.0.1");
    await once(other, "listening");
    const address = other.address();
    const origin = `http://127.0.0.1:${typeof address === "object" ? address?.port : 0}`;
    const demo = startDemo({ origin, grpc: server.grpc });
    expect(await demo.ended()).toBe(1);
    other.close();
    expect(demo.stderr()).toMatch(/is not gatepost.*npm start\n/s);
  });

  it("because gRPC is elsewhere", async () => {
    const demo = startDemo({ origin: server.origin, grpc: "127.0.0.1:9" });
    expect(await demo.ended()).toBe(1);
    expect(demo.stderr()).toMatch(/Nothing listens for gRPC at 127\.0\.0\.1:9 .*GATEPOST_GRPC/s);
  });
});

/** Answers every introspection as the first one was answered. */
function stillActive(): (answer: Passing) => void {
  let first: string | undefined;
  return (answer) => {
    if (!answer.path.endsWith("/introspect") || answer.status !== 200) return;
    first ??= answer.body;
    answer.body = first;
  };
}

describe("the search for secrets", () => {
  const code: Secret = { kind: "otp_code", text: "482913" };
  const password: Secret = { kind: "password", text: "correct horse" };

  it.each([
    ["plain", "x correct horse y"],
    ["hexadecimal", `\\x${Buffer.from("a correct horse").toString("hex")}`],
    ["base64", Buffer.from("user:correct horse?").toString("base64")],
    ["base64url", Buffer.from("ab correct horse").toString("base64url")],
  ])("finds a secret in %s, also within something else", (form, text) => {
    const found = findSecrets([password, code], Buffer.from(text));
    expect(found).toContain(`password in ${form}`);
    expect(found.filter((one) => one.startsWith("otp_code"))).toEqual([]);
  });

  it.each(['{"code":"482913"}', "the code is 482913.", "code=482913&user=1", "code\t482913\n"])(
    "finds a code where it stands alone, as in %j",
    (text) => expect(findSecrets([code], Buffer.from(text))).toEqual(["otp_code in plain"]),
  );

  it.each(["1482913000", "1482913", "4829130", "gpr_482913", "2026-11-28 10:20:30.482913+00"])(
    "does not find a code in %j, which has its digits by chance",
    (text) => expect(findSecrets([code], Buffer.from(text))).toEqual([]),
  );
});
