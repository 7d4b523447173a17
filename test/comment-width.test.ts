/** Comments are wrapped, so that an editor shows all of a line. Code is the formatter's business. */
import { globSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";

const maxColumns = 120;
const comment = /^\s*(\/\/|\/?\*)/;
const files = globSync("src/**/*.ts");

test("no comment is wider than 120 columns", () => {
  const wide = files.flatMap((file) =>
    readFileSync(file, "utf8")
      .split("\n")
      .flatMap((line, index) =>
        comment.test(line) && line.length > maxColumns ? [`${file}:${index + 1}`] : [],
      ),
  );
  expect(wide).toEqual([]);
});
