/**
 * The metrics of several workers as one text in Prometheus's format: each series with the label `worker`. Sums over
 * workers would fall when one of them ends, which Prometheus takes for a restart of all.
 */

/** @param texts the metrics of each worker, by its place */
export function joinMetrics(texts: ReadonlyMap<number, string>): string {
  /** The lines of each metric, by its name: they belong together. */
  const families = new Map<string, string[]>();
  for (const [place, text] of texts) {
    let isNew = false;
    let lines: string[] = [];
    for (const line of text.split("\n")) {
      if (line.startsWith("# HELP ")) {
        const name = line.split(" ", 3).join(" ");
        isNew = !families.has(name);
        lines = families.get(name) ?? [];
        families.set(name, lines);
      }
      if (line.startsWith("#")) {
        if (isNew) lines.push(line);
      } else if (line !== "") lines.push(labelled(line, place));
    }
  }
  return [...families.values()].map((lines) => `${lines.join("\n")}\n`).join("\n");
}

function labelled(sample: string, place: number): string {
  const label = `worker="${place}"`;
  return sample.replace(/^([^{ ]+)(\{?)/, (_, name: string, brace: string) =>
    brace === "" ? `${name}{${label}}` : `${name}{${label},`,
  );
}
