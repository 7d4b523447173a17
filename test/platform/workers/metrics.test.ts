/** The metrics of several workers in one text. */
import { expect, test } from "vitest";
import { joinMetrics } from "../../../src/platform/workers/metrics.ts";
import { familiesOf } from "../../support/scrape.ts";

const of = (count: number) => `# HELP requests_total Requests.
# TYPE requests_total counter
requests_total{path="a{b}"} ${count}
requests_total{path="c"} 0

# HELP start_seconds Start.
# TYPE start_seconds gauge
start_seconds 1.5
`;

test("every series has its worker, and those of a metric stay together", () => {
  const more = "\n# HELP late Only this one has it.\n# TYPE late gauge\nlate 7\n";
  const joined = joinMetrics(
    new Map([
      [1, of(3)],
      [3, of(4) + more],
    ]),
  );
  expect(familiesOf(joined)).toEqual([
    {
      name: "requests_total",
      type: "counter",
      help: "Requests.",
      samples: [
        { name: "requests_total", labels: { worker: "1", path: "a{b}" }, value: 3 },
        { name: "requests_total", labels: { worker: "1", path: "c" }, value: 0 },
        { name: "requests_total", labels: { worker: "3", path: "a{b}" }, value: 4 },
        { name: "requests_total", labels: { worker: "3", path: "c" }, value: 0 },
      ],
    },
    {
      name: "start_seconds",
      type: "gauge",
      help: "Start.",
      samples: [
        { name: "start_seconds", labels: { worker: "1" }, value: 1.5 },
        { name: "start_seconds", labels: { worker: "3" }, value: 1.5 },
      ],
    },
    {
      name: "late",
      type: "gauge",
      help: "Only this one has it.",
      samples: [{ name: "late", labels: { worker: "3" }, value: 7 }],
    },
  ]);
});

test("of no workers there are none", () => {
  expect(joinMetrics(new Map())).toBe("");
});
