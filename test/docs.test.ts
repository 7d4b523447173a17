/** The documents: every link between them leads somewhere, and the index names them all. */
import { existsSync, globSync, readFileSync, statSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { describe, expect, it } from "vitest";
import type { Language } from "./clients/language.ts";
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

interface Snippet {
  readonly page: string;
  /** What follows the backticks: a language, and where the code stands in a file that is run, `file=…`. */
  readonly info: string;
  readonly lines: readonly string[];
}

function snippetsOf(page: string): Snippet[] {
  const blocks = readFileSync(join(root, page), "utf8").matchAll(/^```(\S.*)\n([\s\S]*?)^```$/gm);
  return [...blocks].map(([, info = "", code = ""]) => ({ page, info, lines: code.trimEnd().split("\n") }));
}

/** Whether the lines stand in the file one after the other, perhaps further to the right. */
function contains(file: string, lines: readonly string[]): boolean {
  const all = readFileSync(join(root, file), "utf8").split("\n");
  return all.some((first, start) => {
    const indent = first.slice(0, first.length - first.trimStart().length);
    return lines.every((line, index) => all[start + index] === (line === "" ? "" : indent + line));
  });
}

const snippets = documents.flatMap(snippetsOf);

const usesGrantAuth = ({ lines }: Snippet) => /(grant_?type|generateTokens)\W+auth\b/i.test(lines.join("\n"));
it.each([...new Set(snippets.filter(usesGrantAuth).map(({ page }) => page))])(
  "%s signs in by the grant auth, and says that whoever has the client's secret can do so as anybody",
  (page) => {
    const said =
      "**Whoever has the secret of a client with the grant `auth` can sign in as anybody: back ends only.**";
    expect(prose(page)).toContain(said);
  },
);

it.each(snippets.filter(({ info }) => info.includes(" file=")))(
  "$page: $info shows code that is run",
  ({ info, lines }) => {
    const [, file = ""] = info.split(" file=");
    expect(contains(file, lines), lines.join("\n")).toBe(true);
  },
);

it.each(["docs/auth/protect-your-api/", "docs/clients/"])("%s shows no code that is not run", (folder) => {
  const ofFolder = snippets.filter(({ page }) => page.startsWith(folder));
  expect(ofFolder.length).toBeGreaterThan(3);
  const notRun = ofFolder.filter(({ info }) => !/^(sh|text)$| file=test\/(clients|packages)\//.test(info));
  expect(notRun).toEqual([]);
});

const pages = ["go", "java", "kotlin", "python", "rust", "typescript"];

it.each(pages)("docs/clients/%s.md shows its program as a whole, and counts its lines", (name) => {
  const page = `docs/clients/${name}.md`;
  const program = snippets.find(
    (snippet) => snippet.page === page && /\bconnect\b[^ ]*$/i.test(snippet.info),
  );
  const [, file = ""] = program?.info.split(" file=") ?? [];
  expect(program?.lines.join("\n")).toBe(readFileSync(join(root, file), "utf8").trimEnd());
  const written = program?.lines.filter((line) => line.trim() !== "") ?? [];
  expect(prose(page)).toContain(` ${written.length} lines of your own`);
});

/** What names versions: the language's own files and those that languages share, without lock files. */
function pinsOf(language: string): string {
  const files = globSync([`test/clients/{*.ts,${language}/**/*.{ts,json,toml,xml,mod,in}}`, "package.json"], {
    cwd: root,
    exclude: ["**/package-lock.json"],
  });
  return files.map((file) => readFileSync(join(root, file), "utf8")).join("\n");
}

it.each(pages)("docs/clients/%s.md installs the versions that are checked", (name) => {
  const commands = snippets.filter(({ page, info }) => page === `docs/clients/${name}.md` && info === "sh");
  const text = commands.flatMap(({ lines }) => lines).join("\n");
  const versions = text.match(/(?<![\d.])\d+\.\d+\.\d+(?![\d.])/g) ?? [];
  expect(versions.length).toBeGreaterThan(0);
  const pins = pinsOf(name);
  expect(versions.filter((version) => !pins.includes(version))).toEqual([]);
});

/** Languages whose tools the table of docs/clients names as `npm run test:clients` does, with their versions. */
it.each(["go", "java", "kotlin", "python", "rust", "typescript"])(
  "docs/clients names the tools that are checked in %s",
  async (name) => {
    const { language }: { language: Language } = await import(`./clients/${name}/checks.ts`);
    const table = readFileSync(join(root, "docs/clients/README.md"), "utf8");
    expect(language.checks.length).toBeGreaterThan(0);
    expect(language.checks.filter(({ tool }) => !table.includes(`| ${tool} |`))).toEqual([]);
  },
);

it("the index names every page", () => {
  const index = prose("docs/README.md");
  const pages = documents.filter((file) => file.startsWith("docs/") && file !== "docs/README.md");
  expect(pages.length).toBeGreaterThan(10);
  expect(pages.filter((page) => !index.includes(`](${relative("docs", page)})`))).toEqual([]);
});

it("names npm scripts that exist", () => {
  const { scripts } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const named = documents.flatMap((file) =>
    [...readFileSync(join(root, file), "utf8").matchAll(/npm run ([\w:-]+)/g)].map(([, name = ""]) => name),
  );
  expect(named.filter((name) => !(name in scripts))).toEqual([]);
});

describe("the sizing", () => {
  const measured = readFileSync(join(root, "docs/performance.md"), "utf8");
  const number = (text: string) => Number(text.replaceAll(",", ""));
  const [, ...table] = readFileSync(join(root, "docs/operate/sizing.md"), "utf8").matchAll(
    /^\| (.+?) \| (.+?) \| (.+?) \|$/gm,
  );
  const lines = table.map(([, what = "", found = "", plan = ""]) => {
    const [, figure = "", unit = ""] = /^([\d,]+) (MiB|a second)/.exec(found) ?? [];
    return { what, figure, unit, plan: number(plan.replace(/ MiB$/, "")) };
  });

  /** Where the figure stands in the report of a bench. */
  const places: Readonly<Record<string, RegExp>> = {
    "Introspection, HTTP": /^Introspection, HTTP .*?([\d,]+)\/s of/m,
    "Introspection, gRPC": /^Introspection, native gRPC .*?([\d,]+)\/s of/m,
    "Tokens issued, by the grant `auth`": /^Token issuing .*?([\d,]+)\/s of/m,
    Refreshes: /^Refresh, .*?([\d,]+)\/s of/m,
    "Messages to FCM": /^Messages a second.*? ([\d,]+) \(/m,
    "Memory, auth": /^Peak memory +(\d+) MiB/m,
    "Memory, push": /^Peak memory of the process +(\d+) MiB/m,
  };

  it("has a line for each of these figures", () => {
    expect(lines.map(({ what }) => what)).toEqual(Object.keys(places));
  });

  it.each(lines)("has $what as it was measured, and plans with a reserve", ({ what, figure, unit, plan }) => {
    expect(figure).toBe(places[what]?.exec(measured)?.[1]);
    if (unit === "MiB") expect(plan).toBeGreaterThan(number(figure));
    else {
      expect(plan).toBeLessThanOrEqual(number(figure) / 2);
      expect(plan).toBeGreaterThan(number(figure) * 0.45);
    }
  });

  it("derives how fast expired authorizations are removed", () => {
    const rate = number(/^\| Four processes \| ([\d,]+) \|/m.exec(measured)?.[1] ?? "");
    expect(Math.floor(rate / 2_500)).toBe(20);
    expect(prose("docs/operate/sizing.md")).toContain("twenty times as fast as 2,500 a second expire");
  });
});
