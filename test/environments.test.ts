/** What the compose files and the manifests for Kubernetes hand to the programs is what those take. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import { settingGroups } from "../scripts/settings-doc.ts";
import { migrateTask, resolveDatabaseSettings } from "../src/platform/database/settings.ts";
import type { EnvironmentVariables } from "../src/platform/settings/environment.ts";
import { resolveServerSettings } from "../src/platform/settings/server.ts";
import { joinReadings } from "../src/platform/settings/settings.ts";
import { readSettings } from "../src/services.ts";
import { warningsOf } from "../src/setting-warnings.ts";
import { productionEnv } from "./auth/settings-fixture.ts";
import { root } from "./support/program.ts";
import { suiteCleanup } from "./support/suite-cleanup.ts";

const read = (file: string) => readFileSync(join(root, file), "utf8");

/** What an operator fills in, by the names of production.env.example and of the Secret. */
function filledIn(): Readonly<Record<string, string>> {
  const production = productionEnv();
  return {
    ...production,
    RSA_PUBLISHED_KEYS: '{"keys":[]}',
    PLATFORM_SECURITY_API_KEY: "f1c8d2a4b6e09375",
    DB_PASSWORD_MIGRATION: "a-migration-password",
    DB_PASSWORD_REPLICATION: "a-replication-password",
    POSTGRES_PASSWORD: "a-superuser-password",
    BROKER_PASSWORD: "f1c8d2a4b6e0",
    BROKER_URL: "nats://nats.internal:4222",
    BROKER_CREDENTIALS: "gatepost:f1c8d2a4b6e0",
    CACHE_HOST: "redis.internal",
    CACHE_PASSWORD: "f1c8d2a4b6e0",
    USER_APP_CLIENT_ID: "backend",
    BACKOFFICE_CLIENT_ID: "backoffice",
    PUSH_PROVIDERS: "fcm",
    FCM_CREDENTIALS: JSON.stringify({
      type: "service_account",
      project_id: "example",
      client_email: "push@example.iam.gserviceaccount.com",
      private_key: production.RSA_PRIVATE_KEY,
      token_uri: "https://oauth2.googleapis.com/token",
    }),
  };
}

/** Starts nothing, but reads settings as a server does. @returns which services it runs */
async function accepted(env: EnvironmentVariables): Promise<readonly string[]> {
  const settings = await readSettings(env);
  expect(warningsOf(env, settings)).toEqual([]);
  return (["auth", "push"] as const).filter((service) => settings[service] !== undefined);
}

/** The same for `npm run migrate`. */
function acceptedByMigration(env: EnvironmentVariables): void {
  const { environment, dataDir } = resolveServerSettings(env).value;
  const of = (service: string) =>
    resolveDatabaseSettings(env, { environment, dataDir, service, task: migrateTask });
  joinReadings({ auth: of("auth"), push: of("push") });
}

/** Why neither compose file hands these settings to a server. */
const handedByNone: Readonly<Record<string, string>> = {
  ...reasonOf(
    "its ports are published by their numbers",
    "HOST",
    "SERVER_PORT",
    "GRPC_PORT",
    "MANAGEMENT_PORT",
  ),
  ...reasonOf("the balancer, and push in the same process, connect in cleartext", "TLS_CERT", "TLS_KEY"),
  ...reasonOf("a container has one process", "WORKERS"),
  ...reasonOf("production does not use it", "DATA_DIR"),
  ...reasonOf("the database is the file's own", "DB_PORT", "DB_SSL_CA", "DB_POOLER"),
  ...reasonOf("only the migration needs it", "DB_USER_MIGRATION", "DB_PASSWORD_MIGRATION"),
  ...reasonOf("there is no pooler to go around", "DB_HOST_MIGRATION", "DB_PORT_MIGRATION"),
  ...reasonOf("it is right as it is", "JANITOR_INTERVAL_SECONDS"),
  ...reasonOf(
    "it is right as it is",
    ...["OTP_RESEND_SECONDS", "OTP_SESSION_LIMIT", "OTP_PHONE_NETWORK_LIMIT", "OTP_PHONE_LIMIT"],
    ...["OTP_ADDRESS_LIMIT", "OTP_NETWORK_LIMIT", "OTP_PREFIX_LIMIT", "OTP_CLIENT_LIMIT"],
  ),
  ...reasonOf("it is for tests of the service", "FCM_ENDPOINT"),
  ...reasonOf(
    "it is for another identity provider",
    ...["IDENTITY_PROVIDER_CLIENT_ID", "IDENTITY_PROVIDER_CLIENT_SECRET"],
  ),
};

/** The same for one server of a file. */
const handedElsewhere: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  gatepost: {
    ...reasonOf("it runs both", "SERVICES"),
    ...reasonOf("there are no standbys", "DB_READ_HOSTS"),
  },
  auth: ofOwnServers(),
  push: { ...ofOwnServers(), ...reasonOf("it does not read from standbys", "DB_READ_HOSTS") },
};

function ofOwnServers(): Readonly<Record<string, string>> {
  return {
    ...reasonOf("NATS is the file's own", "BROKER_CA"),
    ...reasonOf("Redis is the file's own", "CACHE_PORT", "CACHE_USERNAME", "CACHE_TLS", "CACHE_CA"),
  };
}

function reasonOf(reason: string, ...names: readonly string[]): Readonly<Record<string, string>> {
  return Object.fromEntries(names.map((name) => [name, reason]));
}

/** The names of the settings that a server has. */
function settingsOf(services: readonly string[]): readonly string[] {
  const others = ["auth", "push"].filter((service) => !services.includes(service));
  const groups = settingGroups.filter(({ title }) => !others.includes(title.toLowerCase()));
  return groups.flatMap(({ tables }) => tables.flatMap((table) => Object.keys(table)));
}

interface ComposeService {
  readonly image?: string;
  readonly command?: string | readonly string[];
  readonly environment?: Readonly<Record<string, string | number | null>>;
  readonly ports?: readonly unknown[];
  readonly logging?: { readonly options: Readonly<Record<string, string>> };
}

describe.each([
  { file: "compose.yaml", servers: { gatepost: ["auth", "push"] } },
  { file: "compose.cluster.yaml", servers: { auth: ["auth"], push: ["push"] } },
])("$file", ({ file, servers }) => {
  const { services }: { services: Readonly<Record<string, ComposeService>> } = parse(read(file), {
    merge: true,
  });
  const values = filledIn();
  const variable = /\$\{([A-Z_]+)(?::\?[^}]*)?\}/g;

  /** As compose fills it in. */
  function environmentOf(name: string): EnvironmentVariables {
    const entries = Object.entries(services[name]?.environment ?? {}).map(([key, value]) => [
      key,
      value === null
        ? values[key]
        : String(value).replace(variable, (_all, from: string) => values[from] ?? ""),
    ]);
    return Object.fromEntries(entries);
  }

  test("its servers and its migration get settings that they take, and no other", async () => {
    for (const [name, expected] of Object.entries(servers))
      expect(await accepted(environmentOf(name)), name).toEqual(expected);
    acceptedByMigration(environmentOf("migrate"));
    const ours = Object.entries(services).filter(([, { image }]) => image === "gatepost");
    expect(ours.map(([name]) => name).sort()).toEqual([...Object.keys(servers), "migrate"].sort());
  });

  test.each(Object.entries(servers))(
    "%s gets every setting that an operator may set, and no other, and the env file explains each",
    (name, own) => {
      const environment = services[name]?.environment ?? {};
      const all = new Set(settingsOf(own));
      const left = new Set([...Object.keys(handedByNone), ...Object.keys(handedElsewhere[name] ?? {})]);
      expect([...all.difference(left)].toSorted()).toEqual(Object.keys(environment).toSorted());
      for (const [setting, value] of Object.entries(environment)) {
        const isAsked = value === null || String(value).includes(`\${${setting}:`);
        if (isAsked)
          expect(read("production.env.example"), setting).toMatch(new RegExp(`^(# )?${setting}=`, "m"));
      }
    },
  );

  test("its PostgreSQL is the tested version, and no log fills the disk", () => {
    const [, tested] = read("docs/deployment.md").match(/tested with (\d+)/) ?? [];
    const images = Object.values(services).flatMap(({ image = "" }) => image.match(/^postgres:.*/) ?? []);
    expect([...new Set(images)]).toEqual([`postgres:${tested}`]);
    for (const [name, { logging }] of Object.entries(services))
      expect(logging?.options, name).toEqual({ "max-size": "100m", "max-file": "5" });
  });

  test("its ports are published on the loopback address alone", () => {
    const ports = Object.values(services).flatMap((service) => service.ports ?? []);
    expect(ports.length).toBeGreaterThan(1);
    for (const port of ports) expect(port).toMatch(/^127\.0\.0\.1:\d+:\d+$/);
  });

  test("what it asks for is explained by production.env.example", () => {
    const names = [...read(file).matchAll(variable)].map(([, name = ""]) => name);
    expect(names.length).toBeGreaterThan(10);
    for (const name of names)
      expect(read("production.env.example"), name).toMatch(new RegExp(`^(# )?${name}=`, "m"));
  });
});

test("production.env.example has what a machine without Docker needs, and no grant of codes needs its settings", async () => {
  const example = read("production.env.example");
  const values: Readonly<Record<string, string>> = filledIn();
  const required = [...example.matchAll(/^([A-Z_]+)='(.*)'$/gm)].map(([, name = "", given = ""]) => [
    name,
    values[name] ?? given,
  ]);
  const [, own = ""] = example.split("# --- For a machine without Docker alone");
  const [part = ""] = own.split("\n# --- ");
  const set = [...part.matchAll(/^# ([A-Z_]+)='(.*)'$/gm)].map(([, name = "", value = ""]) => [name, value]);
  expect(set.length).toBeGreaterThan(5);
  const { FCM_CREDENTIALS } = values;
  const env = { ...Object.fromEntries([...required, ...set]), FCM_CREDENTIALS };
  // It is given to the migration alone.
  delete env.DB_PASSWORD_MIGRATION;
  expect(env).not.toHaveProperty("OTP_VERIFIER_URL");
  expect(await accepted(env)).toEqual(["auth", "push"]);
});

/** The parts of manifests that are looked at here. */
interface PodSpec {
  readonly enableServiceLinks: boolean;
  readonly terminationGracePeriodSeconds?: number;
  readonly volumes: readonly {
    readonly name: string;
    readonly secret?: { readonly items: readonly { readonly key: string; readonly path: string }[] };
  }[];
  readonly containers: readonly {
    readonly env: readonly { readonly name: string; readonly value: string }[];
  }[];
}
interface Manifest {
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly spec: { readonly template: { readonly spec: PodSpec } };
}

describe("the manifests for Kubernetes", () => {
  const manifests: readonly Manifest[] = parseAllDocuments(read("deploy/kubernetes/gatepost.yaml"))
    .map((document) => document.toJS())
    .filter((manifest) => manifest !== null);
  const pods = manifests.filter(({ kind }) => kind === "Deployment" || kind === "Job");
  const cleanup = suiteCleanup();
  let secrets: string;
  beforeAll(() => {
    secrets = mkdtempSync(join(tmpdir(), "gatepost-test-"));
    cleanup.defer(() => rmSync(secrets, { recursive: true }));
  });

  const podOf = (name: string): PodSpec => {
    const found = pods.find(({ metadata }) => metadata.name === name);
    if (!found) throw new Error(`There is no ${name}.`);
    return found.spec.template.spec;
  };

  /** As the container finds it, with the files of the Secret that are mounted for it. */
  function environmentOf(name: string): EnvironmentVariables {
    const { containers, volumes } = podOf(name);
    const mounted = join(secrets, name);
    mkdirSync(mounted);
    const items = volumes.flatMap(({ secret }) => secret?.items ?? []);
    const values = filledIn();
    for (const { key, path } of items) writeFileSync(join(mounted, path), values[key] ?? "");
    const [container] = containers;
    const env = (container?.env ?? []).map(({ name: key, value }) => [
      key,
      value.replace("/run/secrets/gatepost", mounted),
    ]);
    const named = env.filter(([key]) => key?.endsWith("_FILE")).map(([, value]) => value);
    expect(items.map(({ path }) => join(mounted, path)).sort(), name).toEqual(named.sort());
    return Object.fromEntries(env);
  }

  test.each(["auth", "push"])("%s gets the settings that it takes, and no other", async (service) => {
    expect(await accepted(environmentOf(`gatepost-${service}`))).toEqual([service]);
  });

  test("the migration does as well", () => acceptedByMigration(environmentOf("gatepost-migration")));

  test("no Pod but that of auth gets the signing key, and none but the migration's the owner's password", () => {
    const having = (key: string) =>
      pods
        .filter(({ spec }) =>
          spec.template.spec.volumes.some(({ secret }) => secret?.items.some((item) => item.key === key)),
        )
        .map(({ metadata }) => metadata.name);
    expect(having("RSA_PRIVATE_KEY")).toEqual(["gatepost-auth"]);
    expect(having("DB_PASSWORD_MIGRATION")).toEqual(["gatepost-migration"]);
  });

  test("Kubernetes sets no variables of its own, and waits for both times of the shutdown", () => {
    expect(pods).toHaveLength(3);
    for (const { metadata, spec } of pods)
      expect(spec.template.spec.enableServiceLinks, metadata.name).toBe(false);
    for (const service of ["auth", "push"]) {
      const { containers, terminationGracePeriodSeconds } = podOf(`gatepost-${service}`);
      const seconds = (name: string) =>
        Number(containers[0]?.env.find((variable) => variable.name === name)?.value);
      const both = seconds("SHUTDOWN_DELAY_SECONDS") + seconds("SHUTDOWN_GRACE_SECONDS");
      expect(terminationGracePeriodSeconds).toBeGreaterThan(both);
    }
  });
});
