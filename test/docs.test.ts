/** The documents: every link between them leads somewhere, and the index names them all. */
import { existsSync, globSync, readFileSync, statSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { expect, it } from "vitest";
import { root } from "./support/program.ts";

const documents = globSync(["*.md", "docs/**/*.md", "src/**/*.md"], { cwd: root });

/** Without code, in which brackets and # mean something else. */
function prose(file: string): string {
  return readFileSync(join(root, file), "utf8").replaceAll(/^( *)```[\s\S]*?^\1```/gm, "");
}

/** As GitHub makes anchors of headings. */
function anchorsOf(file: string): Set<string> {
  const headings = prose(file).matchAll(/^#+ (.+)$/gm);
  return new Set(
    [...headings].map(([, text = ""]) =>
      text
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
        .replaceAll(" ", "-"),
    ),
  );
}

function brokenLinks(file: string): string[] {
  const links = [...prose(file).matchAll(/\]\(([^)\s]+)\)/g)].map(([, link = ""]) => link);
  return links.filter((link) => {
    if (/^[a-z]+:/.test(link)) return false;
    const [path = "", anchor] = link.split("#");
    const target = path === "" ? file : relative(root, resolve(root, dirname(file), path));
    if (!existsSync(join(root, target))) return true;
    return (
      anchor !== undefined && (statSync(join(root, target)).isDirectory() || !anchorsOf(target).has(anchor))
    );
  });
}

it.each(documents)("%s: its links and their anchors are there", (file) => {
  expect(brokenLinks(file)).toEqual([]);
});

it("the index names every page", () => {
  const index = prose("docs/README.md");
  const pages = documents.filter((file) => file.startsWith("docs/") && file !== "docs/README.md");
  expect(pages.length).toBeGreaterThan(10);
  expect(pages.filter((page) => !index.includes(`](${relative("docs", page)})`))).toEqual([]);
});

it("names npm scripts that exist", () => {
  const { scripts } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const named = documents.flatMap((file) =>
    [...readFileSync(join(root, file), "utf8").matchAll(/npm run ([\w:]+)/g)].map(([, name = ""]) => name),
  );
  expect(named.filter((name) => !(name in scripts))).toEqual([]);
});
