/** What Prometheus reads from a process: its metrics, in the text format. */
import { expect } from "vitest";

export interface Sample {
  /** The family's name, or for a histogram the name with `_bucket`, `_sum` or `_count`. */
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** Samples of one metric. */
export interface Family {
  readonly name: string;
  readonly type: string;
  readonly help: string;
  readonly samples: readonly Sample[];
}

/** @param management the address of the management port, such as http://127.0.0.1:8081 */
export async function scrapeText(management: string): Promise<string> {
  const response = await fetch(`${management}/metrics`);
  expect(response.status).toBe(200);
  return response.text();
}

export async function scrape(management: string): Promise<readonly Family[]> {
  return familiesOf(await scrapeText(management));
}

export function familiesOf(text: string): readonly Family[] {
  const families: (Family & { readonly samples: Sample[] })[] = [];
  for (const line of text.split("\n").filter((one) => one !== "")) {
    const [, help, helpText = ""] = /^# HELP (\S+) (.*)$/.exec(line) ?? [];
    const [, , type] = /^# TYPE (\S+) (\S+)$/.exec(line) ?? [];
    const last = families.at(-1);
    if (help !== undefined) families.push({ name: help, type: "", help: helpText, samples: [] });
    else if (type !== undefined && last) families[families.length - 1] = { ...last, type };
    else last?.samples.push(sampleOf(line));
  }
  return families;
}

function sampleOf(line: string): Sample {
  const [, name = "", labels = "", value = ""] =
    /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? expect.fail(`no sample: ${line}`);
  const pairs = [...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, key, text]) => [key, text]);
  return { name, labels: Object.fromEntries(pairs), value: Number(value.replace("Inf", "Infinity")) };
}

/** The values of the samples of this name that have these labels, and perhaps more. */
export function valuesOf(
  families: readonly Family[],
  name: string,
  labels: Readonly<Record<string, string>> = {},
): readonly number[] {
  return families
    .flatMap(({ samples }) => samples)
    .filter((sample) => sample.name === name)
    .filter((sample) => Object.entries(labels).every(([key, value]) => sample.labels[key] === value))
    .map(({ value }) => value);
}
