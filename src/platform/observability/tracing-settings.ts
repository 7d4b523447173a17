/** Settings of traces, by the names of OpenTelemetry's specification. */
import * as v from "valibot";
import type { EnvironmentVariables } from "../settings/environment.ts";
import { checked, must, oneOf, plainText } from "../settings/kinds.ts";
import { type ReadOptions, resolveSettings, type SettingsTable } from "../settings/settings.ts";
import { baseUrl } from "../settings/urls.ts";

const share = v.pipe(
  checked("a number from 0 to 1", (text) => /^(0?\.\d+|[01](\.0*)?)$/.test(text) && Number(text) <= 1),
  v.transform(Number),
);

const headerList = "HTTP headers as name=value with commas between them, values in percent-encoding";
/** A name by RFC 9110, and a value as W3C Baggage writes it. */
const header = /^\s*([!#$%&'*+.^`|~\w-]+)\s*=\s*([\x21-\x7e]*)\s*$/;

const headers = v.pipe(
  v.string(),
  v.rawTransform(({ dataset, addIssue, NEVER }) => {
    const pairs = dataset.value.split(",").map((pair) => decoded(header.exec(pair)));
    if (pairs.every((pair) => pair !== undefined)) return Object.fromEntries(pairs);
    addIssue({ message: must(headerList) });
    return NEVER;
  }),
  v.description(headerList),
);

function decoded(match: RegExpExecArray | null): readonly [string, string] | undefined {
  const [, name, value] = match ?? [];
  if (name === undefined || value === undefined) return undefined;
  try {
    return [name, decodeURIComponent(value)];
  } catch {
    return undefined;
  }
}

const roots = ["always_on", "always_off", "traceidratio"] as const;

export const tracingTable = {
  OTEL_EXPORTER_OTLP_ENDPOINT: {
    description:
      "Where traces are sent to, by OTLP over HTTP in the binary format: `/v1/traces` below this address. Without it nothing is traced.",
    kind: baseUrl,
    example: "http://collector.internal:4318",
  },
  OTEL_EXPORTER_OTLP_HEADERS: {
    description: "What is sent to the collector with the traces, such as the key that it asks for.",
    kind: headers,
    secret: true,
    exampleFile: "otlp-headers",
  },
  OTEL_SERVICE_NAME: {
    description:
      "What traces call the process; unless set, the program's name, with that of the service where it runs one alone.",
    kind: plainText,
    example: "accounts",
  },
  OTEL_TRACES_SAMPLER: {
    description:
      "Which traces are recorded. With `parentbased_` it is the caller who decides, if there is one that says.",
    kind: oneOf([...roots, "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio"]),
    default: "parentbased_always_on",
  },
  OTEL_TRACES_SAMPLER_ARG: {
    description: "The share of the traces that `traceidratio` records.",
    kind: share,
    default: "1",
  },
} as const satisfies SettingsTable;

export type TracingSettings = NonNullable<ReturnType<typeof resolveTracingSettings>["value"]>;

/** Reads the settings of traces; the value is undefined too where nothing is traced. */
export function resolveTracingSettings(env: EnvironmentVariables, options: Pick<ReadOptions, "environment">) {
  const { value, valid, problems } = resolveSettings(tracingTable, env, options);
  // Without it the others may be meant for other programs of the machine.
  const isOff = "OTEL_EXPORTER_OTLP_ENDPOINT" in valid && valid.OTEL_EXPORTER_OTLP_ENDPOINT === undefined;
  if (isOff) return { value: undefined, problems: [] };
  if (value?.OTEL_EXPORTER_OTLP_ENDPOINT === undefined) return { value: undefined, problems };
  const { OTEL_TRACES_SAMPLER: sampler } = value;
  return {
    value: {
      endpoint: value.OTEL_EXPORTER_OTLP_ENDPOINT,
      headers: value.OTEL_EXPORTER_OTLP_HEADERS ?? {},
      serviceName: value.OTEL_SERVICE_NAME,
      sampler: {
        root: roots.find((root) => sampler.endsWith(root)) ?? "always_on",
        /** Whether the caller decides, if there is one that says. */
        isParentBased: sampler.startsWith("parentbased_"),
        ratio: value.OTEL_TRACES_SAMPLER_ARG,
      },
    },
    problems,
  };
}
