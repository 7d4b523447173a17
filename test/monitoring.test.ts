/** The alert rules and the dashboard of deploy/: promtool takes them, they do what they say, and ask for what there is. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { parse } from "yaml";
import { root } from "./support/program.ts";
import { findPromtool, promtool } from "./support/promtool.ts";
import { familiesOf, scrapeText } from "./support/scrape.ts";
import { backends, startOwnServer } from "./support/servers.ts";
import { suiteCleanup } from "./support/suite-cleanup.ts";

const alertsFile = join(root, "deploy/prometheus-alerts.yaml");
const testsFile = join(root, "deploy/prometheus-alerts.test.yaml");

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly labels: { readonly severity: string };
  readonly annotations: { readonly summary: string; readonly description: string };
}

interface AlertTests {
  readonly tests: readonly {
    readonly name: string;
    readonly alert_rule_test: readonly {
      readonly eval_time: string;
      readonly alertname: string;
      readonly exp_alerts: readonly unknown[];
    }[];
  }[];
}

interface Panel {
  readonly id: number;
  readonly title: string;
  readonly type: string;
  readonly description?: string;
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly targets?: readonly { readonly expr: string }[];
}

interface Dashboard {
  readonly panels: readonly Panel[];
  readonly annotations: { readonly list: readonly { readonly expr: string }[] };
}

const { groups }: { groups: readonly { rules: readonly Rule[] }[] } = parse(readFileSync(alertsFile, "utf8"));
const rules = groups.flatMap((group) => group.rules);
const alertTests: AlertTests = parse(readFileSync(testsFile, "utf8"));
const dashboard: Dashboard = JSON.parse(readFileSync(join(root, "deploy/grafana-dashboard.json"), "utf8"));

/** Every query of the dashboard, with values for what Grafana fills in. */
const queries = [
  ...dashboard.panels.flatMap(({ targets = [] }) => targets),
  ...dashboard.annotations.list,
].map(({ expr }) => expr.replaceAll("$__rate_interval", "5m").replaceAll("$instance", ".*"));

describe.runIf(findPromtool() !== undefined)("promtool", () => {
  const cleanup = suiteCleanup();
  let directory: string;
  beforeAll(() => {
    directory = mkdtempSync(join(tmpdir(), "gatepost-test-"));
    cleanup.defer(() => rmSync(directory, { recursive: true }));
  });

  test("finds the alert rules right", () => {
    expect(promtool(["check", "rules", alertsFile])).toContain(`${rules.length} rules found`);
  });

  test("sees each alert fire for what it is about, and not for what is usual", () => {
    expect(promtool(["test", "rules", testsFile])).toContain("SUCCESS");
  });

  test("can tell: a test of an alert with another threshold fails", () => {
    const weakened = readFileSync(alertsFile, "utf8").replace("_age_seconds) > 120", "_age_seconds) > 1200");
    writeFileSync(join(directory, "prometheus-alerts.yaml"), weakened);
    const copy = join(directory, "prometheus-alerts.test.yaml");
    const tests = alertTests.tests.filter(({ name }) => name.startsWith("an event that is not delivered"));
    writeFileSync(copy, JSON.stringify({ ...alertTests, tests }));
    expect(() => promtool(["test", "rules", copy])).toThrow("GatepostEventsNotDelivered");
  });

  test("can read every query of the dashboard", () => {
    const file = join(directory, "queries.yaml");
    const recorded = queries.map((expr, index) => ({ record: `query_${index}`, expr }));
    writeFileSync(file, JSON.stringify({ groups: [{ name: "dashboard", rules: recorded }] }));
    expect(promtool(["check", "rules", file])).toContain(`${queries.length} rules found`);
  });

  test("has nothing to say against the names and units of our metrics", async () => {
    const server = await startOwnServer(backends.at(-1) ?? "PGlite");
    cleanup.defer(() => server.stop());
    const families = (await scrapeText(server.management)).split("\n\n");
    const ours = families.filter((family) => family.startsWith("# HELP gatepost_"));
    expect(ours.length).toBeGreaterThan(15);
    expect(promtool(["check", "metrics"], { input: `${ours.join("\n")}\n` })).toBe("");
  });
});

test("each alert has a test in which it fires for an hour of its state, and not before and after", () => {
  const held = alertTests.tests.flatMap(({ alert_rule_test: checks }) => {
    const [alert, ...others] = new Set(checks.map(({ alertname }) => alertname));
    expect(others).toEqual([]);
    const isFiring = checks.map(({ exp_alerts: alerts }) => alerts.length > 0);
    const minutes = checks.map(({ eval_time: time }) => Number.parseInt(time, 10));
    const first = isFiring.indexOf(true);
    const last = isFiring.lastIndexOf(true);
    const sinceBegin = (minutes[last] ?? 0) - (minutes[first - 1] ?? 0);
    return first > 0 && last < isFiring.length - 1 && sinceBegin >= 55 ? [alert] : [];
  });
  const alerts = new Set(rules.map(({ alert }) => alert));
  expect(alerts.size).toBe(rules.length);
  expect(new Set(held)).toEqual(alerts);
});

test("no alert depends on the name of a scrape job", () => {
  for (const { alert, expr } of rules) expect(expr, alert).not.toMatch(/\bjob *(=|!)/);
});

test("each alert says how bad it is, what is the matter, and what to do", () => {
  for (const { alert, labels, annotations } of rules) {
    expect(["critical", "warning", "info"], alert).toContain(labels.severity);
    expect(annotations.summary.length, alert).toBeGreaterThan(20);
    expect(annotations.description, alert).toMatch(/\.$/);
  }
});

test("each alert has its place in the runbook, in the same order, and nothing else has", () => {
  const page = readFileSync(join(root, "docs/operate/alarms.md"), "utf8");
  const headings = [...page.matchAll(/^## (.+)$/gm)].map(([, name]) => name);
  expect(headings).toEqual(rules.map(({ alert }) => alert));
  for (const section of page.split(/^## .+$/m).slice(1)) expect(section.trim().length).toBeGreaterThan(80);
});

test("no panel of the dashboard lies on another, and each says what it shows", () => {
  const cells = dashboard.panels.flatMap(({ gridPos: { x, y, w, h } }) =>
    Array.from({ length: w * h }, (_, index) => `${x + (index % w)},${y + Math.floor(index / w)}`),
  );
  expect(new Set(cells).size).toBe(cells.length);
  expect(new Set(dashboard.panels.map(({ id }) => id)).size).toBe(dashboard.panels.length);
  for (const { title, type, description = "" } of dashboard.panels) {
    if (type !== "row") expect(description, title).not.toBe("");
  }
});

// An embedded database has no connections to ask for.
describe.runIf(backends.includes("PostgreSQL"))("the metrics that alerts and dashboard ask for", () => {
  const cleanup = suiteCleanup();
  /** Names of all series, with the labels that each can have. */
  const series = new Map<string, Set<string>>();
  beforeAll(async () => {
    const server = await startOwnServer("PostgreSQL");
    cleanup.defer(() => server.stop());
    for (const { name: family, samples } of familiesOf(await scrapeText(server.management))) {
      series.set(family, new Set());
      for (const { name, labels } of samples) {
        const known = series.get(name) ?? new Set();
        series.set(name, known.union(new Set(Object.keys(labels))));
      }
    }
  });

  const all = [...queries, ...rules.map(({ expr }) => expr)];

  test("are all in the scrape of a server, with the labels that are selected", () => {
    const selectors = all.flatMap((expr) => [
      ...expr.matchAll(/\b((?:gatepost|nodejs|process)_\w+)\b(?:\{([^}]*)\})?/g),
    ]);
    expect(selectors.length).toBeGreaterThan(50);
    const missing = selectors.flatMap(([, name = "", matchers = ""]) => {
      const labels = series.get(name);
      if (!labels) return [name];
      const ofTarget = ["instance", "job"];
      const asked = [...matchers.matchAll(/(\w+)\s*(?:=~|!~|!=|=)/g)].map(([, label = ""]) => label);
      return asked
        .filter((label) => !labels.has(label) && !ofTarget.includes(label))
        .map((label) => `${name}{${label}}`);
    });
    expect(missing).toEqual([]);
  });

  test("leave out none of the program's own", () => {
    const own = [...series.keys()].filter((name) => /^gatepost_(?!.*_(bucket|sum|count)$)/.test(name));
    const unused = own.filter((name) => !all.some((expr) => expr.includes(name)));
    expect(unused).toEqual([]);
  });
});
