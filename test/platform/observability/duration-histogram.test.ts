/** A duration histogram is exposed exactly as prom-client exposes its own. */
import { Histogram, Registry } from "prom-client";
import { describe, expect, test } from "vitest";
import {
  DurationHistogram,
  durationBuckets,
} from "../../../src/platform/observability/duration-histogram.ts";

const [ours, theirs] = [new Registry(), new Registry()];
const metric = {
  name: "sample_seconds",
  help: 'Time,\nas "sample" \\ example.',
  labelNames: ["operation", "status"],
};
const histogram = new DurationHistogram({ ...metric, registers: [ours] });
const reference = new Histogram({ ...metric, buckets: durationBuckets, registers: [theirs] });

function observe(labels: { operation: string; status: number | string }, seconds: number): void {
  histogram.observe(labels, seconds);
  reference.observe(labels, seconds);
}

describe("a duration histogram, beside one of prom-client", () => {
  test("exposes the same before its first observation", async () => {
    expect(await ours.metrics()).toBe(await theirs.metrics());
  });

  test("exposes the same series, in the same order", async () => {
    for (const one of [histogram, reference]) one.zero({ operation: "never", status: 200 });
    for (const one of [histogram, reference]) one.zero({ operation: "z", status: 204 });
    for (const bound of durationBuckets)
      for (const seconds of [bound, bound * 0.9, bound * 1.1])
        observe({ operation: "a", status: 200 }, seconds);
    observe({ operation: "a", status: 404 }, 0);
    observe({ operation: "z", status: 204 }, 1e9);
    observe({ operation: "z", status: 204 }, -1);
    observe({ operation: "a", status: "404" }, 0.1);
    observe({ operation: 'of "quotes", \\ and\nlines', status: 200 }, 0.25);
    observe({ operation: "", status: 200 }, 1 / 3);
    observe({ operation: "__proto__", status: 0 }, 1e-7);
    const exposition = await ours.metrics();
    expect(exposition).toBe(await theirs.metrics());
    expect(exposition).toContain('sample_seconds_count{operation="a",status="404"} 2\n');
    expect(exposition).toContain('sample_seconds_bucket{le="+Inf",operation="never",status="200"} 0\n');
  });

  test("has the same metric as JSON", async () => {
    const [own] = await ours.getMetricsAsJSON();
    const [other] = await theirs.getMetricsAsJSON();
    expect(own).toMatchObject({ name: metric.name, help: metric.help, type: "histogram", aggregator: "sum" });
    expect(own?.values.map(({ value, labels }) => ({ value, labels }))).toEqual(
      other?.values.map(({ value, labels }) => ({ value, labels })),
    );
  });

  test.each([Number.NaN, Number.POSITIVE_INFINITY])("refuses %s", async (seconds) => {
    const before = await ours.metrics();
    expect(() => histogram.observe({ operation: "new", status: 200 }, seconds)).toThrow(TypeError);
    expect(await ours.metrics()).toBe(before);
  });

  test("has a name that its registry has only once", () => {
    expect(() => new DurationHistogram({ ...metric, registers: [ours] })).toThrow("already been registered");
  });
});
