/**
 * The JSON Schema of the values of the Helm chart: Helm refuses what is misspelt, names of settings included. What
 * Kubernetes has defined itself, such as a volume, is checked as far as its first members.
 */
import { tracingTable } from "../src/platform/observability/tracing-settings.ts";
import { serverTable } from "../src/platform/settings/server.ts";
import { servicePrefix } from "../src/platform/settings/settings.ts";
import { serviceNames } from "../src/services.ts";
import { settingGroups } from "./settings-doc.ts";

type Schema = Readonly<Record<string, unknown>>;

/** What the templates set. */
const ofTheChart = ["NODE_ENV", "SERVICES", "HOST", "SERVER_PORT", "GRPC_PORT", "MANAGEMENT_PORT"];

const ofProcess: ReadonlySet<string> = new Set([serverTable, tracingTable].flatMap(Object.keys));
const names = settingGroups
  .flatMap(({ tables }) => tables.flatMap((table) => Object.keys(table)))
  .filter((name) => !ofTheChart.includes(name));
const prefixes = serviceNames.map(servicePrefix).join("|");
/** Those of services have the service's prefix, too. */
const setting = [
  names.filter((name) => ofProcess.has(name)).join("|"),
  `(${prefixes})?(${names.filter((name) => !ofProcess.has(name)).join("|")})`,
].join("|");

const text: Schema = { type: "string" };
const flag: Schema = { type: "boolean" };
const texts: Schema = { type: "object", additionalProperties: text };
const ofKubernetes: Schema = { type: "object" };
const count = (minimum: number): Schema => ({ type: "integer", minimum });
const oneOf = (...values: readonly string[]): Schema => ({ enum: values });
const listOf = (items: Schema): Schema => ({ type: "array", items });

/** With no other members. */
function map(
  required: Readonly<Record<string, Schema>>,
  optional: Readonly<Record<string, Schema>> = {},
): Schema {
  const properties = { ...required, ...optional };
  return { type: "object", required: Object.keys(required), properties, additionalProperties: false };
}

/** No booleans: YES without quotation marks is one in YAML, and no setting takes true. */
const settings: Schema = {
  type: "object",
  patternProperties: { [`^(${setting})(_FILE)?$`]: { type: ["string", "number"] } },
  additionalProperties: false,
};
const secrets: Schema = {
  type: "array",
  uniqueItems: true,
  items: { type: "string", pattern: `^(${setting})$` },
};

const source = map({ name: text }, { optional: flag });
const pod = map(
  {},
  {
    imagePullSecrets: listOf(map({ name: text })),
    annotations: texts,
    nodeSelector: texts,
    tolerations: listOf(
      map(
        {},
        {
          key: text,
          operator: oneOf("Exists", "Equal"),
          value: text,
          effect: oneOf("NoSchedule", "PreferNoSchedule", "NoExecute"),
          tolerationSeconds: { type: "integer" },
        },
      ),
    ),
    affinity: map(
      {},
      { nodeAffinity: ofKubernetes, podAffinity: ofKubernetes, podAntiAffinity: ofKubernetes },
    ),
    serviceAccountName: text,
    extraVolumes: listOf({ type: "object", required: ["name"], properties: { name: text } }),
    extraVolumeMounts: listOf(
      map(
        { name: text, mountPath: text },
        {
          subPath: text,
          subPathExpr: text,
          readOnly: flag,
          recursiveReadOnly: text,
          mountPropagation: text,
        },
      ),
    ),
    extraEnv: listOf(map({ name: text }, { value: text, valueFrom: ofKubernetes })),
    envFrom: listOf(map({}, { prefix: text, configMapRef: source, secretRef: source })),
  },
);

const quantities: Schema = { type: "object", additionalProperties: { type: ["string", "number"] } };
const resources = map({}, { requests: quantities, limits: quantities });

const definitions = { settings, secrets, pod, resources };
type Defined = keyof typeof definitions;
const defined = (...of: readonly Defined[]): Readonly<Record<string, Schema>> =>
  Object.fromEntries(of.map((name) => [name, { $ref: `#/definitions/${name}` }]));

const service = map(
  {
    ...defined("settings", "secrets", "resources"),
    replicas: count(0),
    autoscaling: map({ enabled: flag, minReplicas: count(1), maxReplicas: count(1), cpuPercent: count(1) }),
  },
  defined("pod"),
);
const ofPrometheus = map({ enabled: flag, labels: texts });

export const chartValues: Schema = {
  $schema: "http://json-schema.org/draft-07/schema#",
  ...map(
    {
      image: map({ repository: text, tag: text, pullPolicy: oneOf("Always", "IfNotPresent", "Never") }),
      secretName: text,
      ...defined("pod"),
      database: map(defined("settings", "secrets")),
      services: map(defined("settings", "secrets")),
      migration: map(defined("settings", "secrets", "resources"), defined("pod")),
      auth: service,
      push: service,
      networkPolicy: map({ enabled: flag, monitoringNamespace: text }),
      podMonitor: ofPrometheus,
      prometheusRule: ofPrometheus,
    },
    // Helm's own, where the chart is part of another.
    { global: ofKubernetes },
  ),
  definitions,
};
