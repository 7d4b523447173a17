/**
 * `npm run chart`: writes deploy/kubernetes, the manifests that Helm renders from deploy/helm with the default values.
 * With `-- --check` it only compares. Either way the chart has to pass Helm's own checks, and its manifests, with other
 * values as well, the schemas of Kubernetes.
 *
 * Helm's engine and the schemas are packages of Python, which are installed in a virtual environment below .data/.
 */
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { readArguments } from "../src/command.ts";
import { outputOf, ROOT, say, usageIn } from "./command.ts";

const { values: asked } = readArguments({
  usage: usageIn(import.meta.filename),
  options: { check: { type: "boolean" } },
});

/** The lowest version that Chart.yaml names, one that many have, and the newest that there is. */
const kubernetesVersions = ["1.28", "1.30", "1.37"];
const manifestsFile = "deploy/kubernetes/gatepost.yaml";
const header = "# What `npm run chart` makes of deploy/helm/gatepost with its default values. Do not edit.\n";
const sources = join(ROOT, "scripts/chart");
const venv = join(ROOT, ".data/chart");

/** Values that a deployment may set and the default values leave out: one of every kind. */
const otherValues = {
  image: { repository: "registry.example.com/gatepost", tag: "1.2.3", pullPolicy: "Always" },
  secretName: "secrets",
  database: { settings: { DB_READ_HOSTS: "standby-1,standby-2", DB_POOL_SIZE: 5 } },
  services: {
    settings: {
      CACHE_HOST: "redis",
      SHUTDOWN_DELAY_SECONDS: 30,
      OTEL_EXPORTER_OTLP_ENDPOINT: "https://collector.example.com",
    },
    secrets: [
      ...["BROKER_CREDENTIALS", "PLATFORM_SECURITY_API_KEY", "CACHE_PASSWORD"],
      "OTEL_EXPORTER_OTLP_HEADERS",
    ],
  },
  pod: {
    imagePullSecrets: [{ name: "registry" }],
    annotations: { "example.com/team": "identity" },
    nodeSelector: { disk: "ssd" },
    tolerations: [{ key: "dedicated", operator: "Exists", effect: "NoSchedule" }],
    affinity: {
      nodeAffinity: {
        requiredDuringSchedulingIgnoredDuringExecution: {
          nodeSelectorTerms: [{ matchExpressions: [{ key: "zone", operator: "In", values: ["a", "b"] }] }],
        },
      },
    },
    serviceAccountName: "gatepost",
    extraVolumes: [{ name: "authority", configMap: { name: "authority" } }],
    extraVolumeMounts: [{ name: "authority", mountPath: "/authority", readOnly: true }],
    extraEnv: [{ name: "NODE_EXTRA_CA_CERTS", value: "/authority/ca.pem" }],
    envFrom: [{ configMapRef: { name: "more", optional: true } }],
  },
  auth: { pod: { nodeSelector: { pool: "auth" } }, replicas: 3, autoscaling: { enabled: false } },
  push: {
    pod: { tolerations: [] },
    settings: {
      PLATFORM_SECURITY_URL: "http://proxy:9090",
      PUSH_DB_NAME: "push",
      PUSH_TTL_SECONDS: 2_419_200,
      SHUTDOWN_DELAY_SECONDS: 0,
    },
  },
  networkPolicy: { enabled: false },
  podMonitor: { enabled: true, labels: { release: "prometheus" } },
  prometheusRule: { enabled: true, labels: { release: "prometheus" } },
};

const alarms = readFileSync(join(ROOT, "deploy/prometheus-alerts.yaml"), "utf8");

/** Texts in the manifests of these values, with how often each must occur, and the fault of the chart otherwise. */
const expected: readonly (readonly [text: string, times: number, wrong: string])[] = [
  ['value: "2419200"', 1, "writes a large number with an exponent"],
  ["- name: registry", 3, "leaves out a Pod's imagePullSecrets"],
  ["example.com/team: identity", 3, "leaves out a Pod's annotations"],
  ["disk: ssd", 3, "does not merge the nodeSelector of a part with that of all"],
  ["pool: auth", 1, "gives a part the nodeSelector of another"],
  ["key: dedicated", 2, "leaves out a Pod's tolerations, or does not let a part have none"],
  ["nodeAffinity:", 3, "leaves out a Pod's affinity"],
  ["name: OTEL_EXPORTER_OTLP_HEADERS_FILE", 2, "does not hand a further secret to both services"],
  ["serviceAccountName: gatepost", 3, "leaves out a Pod's serviceAccountName"],
  ["mountPath: /authority", 3, "leaves out a Pod's extraVolumeMounts"],
  ["name: NODE_EXTRA_CA_CERTS", 3, "leaves out a Pod's extraEnv"],
  ["configMapRef:", 3, "leaves out a Pod's envFrom"],
  ['{ name: PLATFORM_SECURITY_URL, value: "http://proxy:9090" }', 1, "goes over PLATFORM_SECURITY_URL"],
  ['{ name: SHUTDOWN_DELAY_SECONDS, value: "0" }', 1, "goes over a setting that is 0"],
  ["kind: HorizontalPodAutoscaler", 1, "does not let a service be without autoscaling"],
  ["replicas: 3", 1, "does not have so many Pods without autoscaling"],
  ["clusterIP: None", 2, "has no headless Service of each service"],
  ["release: prometheus", 2, "leaves out labels that the Prometheus operator selects by"],
  [alarms.trim().replaceAll("\n", "\n  "), 1, "has other alarms than deploy/"],
];

/** Values that have to be refused, with what the error has to name; the last by the schemas of Kubernetes. */
const refused: readonly (readonly [values: object, named: string])[] = [
  [{ auth: { autoscaling: { minReplicas: "two" } } }, "/auth/autoscaling/minReplicas"],
  [{ auth: { autoscalling: { enabled: false } } }, "autoscalling"],
  [{ push: { settings: { PUSH_MAX_PER_SECND: 1 } } }, "PUSH_MAX_PER_SECND"],
  [{ push: { settings: { ENABLE_DEBUG: true } } }, "ENABLE_DEBUG"],
  [{ push: { secrets: ["FCM_CREDENTIAL"] } }, "FCM_CREDENTIAL"],
  [{ pod: { extraVolumes: [{ name: "authority", configmap: {} }] } }, "configmap"],
];

/** Makes the virtual environment anew if the requirements have changed. */
async function install(): Promise<void> {
  const requirements = join(sources, "requirements.txt");
  const stamp = join(venv, createHash("sha256").update(readFileSync(requirements)).digest("hex"));
  if (existsSync(stamp)) return;
  rmSync(venv, { recursive: true, force: true });
  await outputOf("python3", "-m", "venv", venv);
  const pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
  await outputOf(join(venv, "bin/python"), ...pip, "--require-hashes", "--requirement", requirements);
  writeFileSync(stamp, "");
}

/** @returns the manifests @throws with what is wrong with them */
async function render(values: object): Promise<string> {
  const args = [join(sources, "render.py"), join(ROOT, "deploy/helm/gatepost"), ...kubernetesVersions];
  const child = spawn(join(venv, "bin/python"), args);
  child.stdin.end(JSON.stringify(values));
  const [manifests, errors] = await Promise.all([text(child.stdout), text(child.stderr)]);
  if (manifests === "") throw new Error(`The chart is not right:\n${errors.trim()}`);
  return header + manifests;
}

/** @throws if the values pass, or are refused for something else */
async function refuse(values: object, named: string): Promise<void> {
  const error = await render(values).then(() => undefined, String);
  if (!error?.includes(named)) throw new Error(`${named} is not refused: ${error}`);
}

process.chdir(ROOT);
await install();
const [manifests, others] = await Promise.all([render({}), render(otherValues)]);
await Promise.all(refused.map(([values, named]) => refuse(values, named)));
for (const [text, times, wrong] of expected)
  if (others.split(text).length - 1 !== times) throw new Error(`The chart ${wrong}.`);
const isUpToDate = existsSync(manifestsFile) && readFileSync(manifestsFile, "utf8") === manifests;
if (isUpToDate) say(`${manifestsFile} is up to date.`);
else if (asked.check) {
  say(`${manifestsFile} has drifted from the chart. Run \`npm run chart\` and commit what it writes.`);
  process.exitCode = 1;
} else {
  writeFileSync(manifestsFile, manifests);
  say(`Updated ${manifestsFile}`);
}
