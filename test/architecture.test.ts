/**
 * Holds the arrows between the layers and folders of src/: what may import what. The reasons are in CONTRIBUTING.md.
 * Imports that are only types count as well.
 */
import { existsSync, globSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { describe, expect, it } from "vitest";
import { readSourceFile } from "./support/source-files.ts";

/** Longer than that and a file holds more than one thing. */
const MAX_LINES = 400;
const PROGRAMS = ["src/command.ts", "src/hold.ts", "src/main.ts", "src/migrate.ts", "src/revoke-all.ts"];
const SPEAKS_A_CONTRACT =
  /^src\/((?!platform\/)((development\/)?[^/]+\/(http|rpc|events)|.+-client)|platform\/rpc\/(health|reflection))\.ts$/;

/** A layer of src/; no import leads from one of a lower rank to one of a higher. */
interface Layer {
  readonly name: string;
  readonly rank: number;
  readonly files: RegExp;
}

/** The first one that fits a file is its layer. */
const LAYERS: readonly Layer[] = [
  { name: "platform", rank: 0, files: /^src\/platform\// },
  { name: "program", rank: 5, files: /^src\/(development\/)?[^/]+\.ts$/ },
  { name: "service", rank: 4, files: /^src\/(development\/)?[^/]+\/service\.ts$/ },
  { name: "transport", rank: 3, files: /^src\/(development\/)?[^/]+\/(http|rpc)\.ts$/ },
  {
    name: "ground",
    rank: 1,
    files: /^src\/[^/]+\/(settings[^/]*|[^/]+-settings|errors|([^/]+-)?schema|events)\.ts$/,
  },
  { name: "feature", rank: 2, files: /^src\/[^/]+\// },
];

/**
 * The rooms of src/platform/, from the ground up, and which of those below each imports. All of them are there
 * because something needs them: an arrow that nothing uses is taken out of the table.
 */
const PLATFORM_ROOMS: Readonly<Record<string, readonly string[]>> = {
  base: [],
  process: ["base"],
  crypto: ["base"],
  door: ["base"],
  openapi: ["base", "door"],
  rpc: ["base", "door"],
  http2: ["base"],
  settings: ["base"],
  workers: ["base", "process"],
  database: ["base", "settings"],
  cache: ["base", "settings"],
  observability: ["base", "settings"],
  messaging: ["base", "database", "settings"],
  http: ["base", "door", "observability", "process"],
};

/** Words of the product: its name, its services, their subjects, and the systems that they call. */
const PRODUCT_WORDS =
  /gatepost|barrier|\botp\b|one-?time|phone|fcm|apns|web-?push|vapid|introspect|\bidentit(y|ies)\b|\bdevices\b|notification|(?<=["'`/.])(auth|push)\b(?!\()|\b(auth|push) service|\b(AUTH|PUSH)_/gi;

/** Product words that stay in the platform, and why. */
const STAYING_WORDS: readonly { readonly file: string; readonly words: RegExp; readonly why: string }[] = [
  {
    file: "src/platform/observability/redaction.ts",
    words: /^(otp|phone|one-?time)$/i,
    why: "A log keeps every secret and every phone number out, whichever service writes it.",
  },
  {
    file: "src/platform/cache/redis-cache.ts",
    words: /^notification$/i,
    why: "The name of an option of the client of Redis.",
  },
  {
    file: "src/platform/database/connections/client-options.ts",
    words: /^gatepost$/,
    why: "The name by which PostgreSQL shows the connections of this program to its operator.",
  },
  {
    file: "src/platform/database/settings.ts",
    words: /^(gatepost|auth|AUTH_)$/,
    why: "Defaults of the database's settings, which are the program's own name; a service as an example.",
  },
  {
    file: "src/platform/rpc/protocols.ts",
    words: /^identity$/,
    why: "The encoding of messages that changes nothing, as gRPC and HTTP name it.",
  },
  {
    file: "src/platform/openapi/request-body.ts",
    words: /^identity$/,
    why: "The content coding of HTTP that changes nothing (RFC 9110 section 12.5.3).",
  },
  {
    file: "src/platform/settings/settings.ts",
    words: /^(auth|AUTH_)$/,
    why: "A service as an example of a prefix.",
  },
  {
    file: "src/platform/settings/urls.ts",
    words: /^auth$/,
    why: "A host as an example of a URL.",
  },
];

/** Folders of test/ that mirror none of src/, and why. */
const OWN_TEST_FOLDERS: Readonly<Record<string, string>> = {
  "test/push/end-to-end":
    "Whole servers as processes, with the fakes of the providers: no one folder's subject.",
};

/** So that they are read. */
const MAX_README_LINES = 10;

/** Undefined of what is not in src/. */
function layerOf(file: string): Layer | undefined {
  return LAYERS.find(({ files }) => files.test(file));
}

/** The folder of the service that a file belongs to. */
function serviceOf(file: string): string | undefined {
  if (layerOf(file)?.name === "program") return undefined;
  const folder = /^src\/(development\/)?[^/]+\//.exec(file)?.[0];
  return folder === "src/platform/" ? undefined : folder;
}

const files = globSync("src/**/*.ts").sort().map(readSourceFile);

/** The imports that a rule forbids, as `from -> to`. */
function forbidden(rule: (from: string, to: string) => boolean): string[] {
  const named = (file: string): string => {
    const layer = layerOf(file);
    return layer ? `${file} (${layer.name})` : file;
  };
  return files.flatMap(({ file, imports }) =>
    imports.filter((to) => rule(file, to)).map((to) => `${named(file)} -> ${named(to)}`),
  );
}

type Graph = ReadonlyMap<string, Iterable<string>>;

/** The first cycle found from each node on, once. */
function cycles(graph: Graph): string[] {
  const done = new Set<string>();
  const found: string[] = [];
  const walk = (file: string, path: readonly string[]): void => {
    if (path.includes(file)) found.push([...path.slice(path.indexOf(file)), file].join(" -> "));
    if (path.includes(file) || done.has(file)) return;
    for (const target of graph.get(file) ?? []) walk(target, [...path, file]);
    done.add(file);
  };
  for (const file of graph.keys()) walk(file, []);
  return found;
}

/** Every folder below this one, and itself. */
function foldersOf(root: string): string[] {
  const holders = globSync(`${root}/**/*.ts`).map((file) => dirname(file));
  const withParents = holders.flatMap((folder) => {
    const steps = relative(root, folder).split("/");
    return steps.map((_step, index) => join(root, ...steps.slice(0, index + 1)));
  });
  return [...new Set([root, ...withParents])].sort();
}

/** The folder directly below `parent` that the file is in, however deep; undefined for none. */
function childFolder(parent: string, file: string): string | undefined {
  const [child, ...rest] = file.startsWith(`${parent}/`) ? relative(parent, file).split("/") : [];
  return rest.length > 0 ? child : undefined;
}

/** The imports between the folders directly below this one, as a set for each. */
function folderGraph(parent: string): Map<string, Set<string>> {
  const graph = new Map<string, Set<string>>();
  for (const { file, imports } of files) {
    const from = childFolder(parent, file);
    if (from === undefined) continue;
    const targets = graph.get(from) ?? new Set();
    graph.set(from, targets);
    for (const target of imports) {
      const to = childFolder(parent, target);
      if (to !== undefined && to !== from) targets.add(to);
    }
  }
  return graph;
}

function arrowsOf(graph: Iterable<readonly [string, Iterable<string>]>): string[] {
  return [...graph].flatMap(([from, targets]) => [...targets].map((to) => `${from} -> ${to}`)).sort();
}

describe("src/", () => {
  const parents = foldersOf("src").filter((folder) => folderGraph(folder).size > 1);

  it("has files to check", () => {
    expect(files.length).toBeGreaterThan(0);
  });

  it("imports along the arrow", () => {
    const upwards = forbidden((from, to) => (layerOf(from)?.rank ?? 0) < (layerOf(to)?.rank ?? 0));
    const arrow = LAYERS.toSorted((a, b) => b.rank - a.rank).map(({ name }) => name);
    const advice = `an import never leads upwards in ${arrow.join(" -> ")}; pass in what the lower one needs`;
    expect(upwards, advice).toEqual([]);
  });

  it("keeps the services apart: they meet on the wire", () => {
    const toOther = forbidden((from, to) => {
      const [own, other] = [serviceOf(from), serviceOf(to)];
      return own !== undefined && other !== undefined && own !== other;
    });
    expect(toOther, "one service never imports another; call it by its contract").toEqual([]);
  });

  it("reads the environment in the programs only", () => {
    const readers = files.filter(({ readsEnvironment }) => readsEnvironment).map(({ file }) => file);
    expect(readers, "only the programs read process.env; take it, or a setting, as an argument").toEqual(
      PROGRAMS,
    );
  });

  it("uses generated code only where a contract is spoken", () => {
    const elsewhere = forbidden((from, to) => to.startsWith("gen/") && !SPEAKS_A_CONTRACT.test(from));
    const advice = "features use plain types; http.ts, rpc.ts, events.ts and *-client.ts translate";
    expect(elsewhere, advice).toEqual([]);
  });

  it("imports without cycles", () => {
    expect(
      cycles(new Map(files.map(({ file, imports }) => [file, imports]))),
      "what two files need of each other belongs in a third",
    ).toEqual([]);
  });

  it.each(parents)("has no circle between the folders in %s", (parent) => {
    const advice = "one of two folders is handed what it needs of the other, or both import a third";
    expect(cycles(folderGraph(parent)), advice).toEqual([]);
  });

  it("holds one thing per file", () => {
    const long = files.filter(({ lines }) => lines > MAX_LINES).map(({ file, lines }) => `${file}: ${lines}`);
    expect(long, `no file over ${MAX_LINES} lines`).toEqual([]);
  });
});

describe("packages/", () => {
  const ofPackages = globSync("packages/*/src/*.ts").map(readSourceFile);

  it("is imported by no file of src/", () => {
    const imported = forbidden((_from, to) => /^(packages\/|@gatepost\/)/.test(to));
    expect(imported, "the server stands alone; users install the packages").toEqual([]);
  });

  it("imports its own files, and others by the names under which they are installed", () => {
    const outside = ofPackages.flatMap(({ file, imports }) =>
      imports
        .filter((to) => to.includes("/src/") || to.startsWith("gen/"))
        .filter((to) => dirname(to) !== dirname(file))
        .map((to) => `${file} -> ${to}`),
    );
    expect(outside).toEqual([]);
  });

  it("has one version, that of the server", () => {
    const read = (file: string) => JSON.parse(readFileSync(file, "utf8"));
    const { version } = read("package.json");
    for (const file of globSync("packages/*/package.json")) {
      const { dependencies, ...manifest } = read(file);
      expect(manifest.version, file).toBe(version);
      for (const [name, range] of Object.entries(dependencies ?? {}))
        if (name.startsWith("@gatepost/")) expect(range, `${file}: ${name}`).toBe(version);
    }
  });

  it("needs Node.js in the client's entry for it alone", () => {
    const users = ofPackages.filter(({ imports }) => imports.some((to) => to.startsWith("node:")));
    expect(users.map(({ file }) => file)).toEqual(["packages/client/src/node.ts"]);
  });

  it("imports without cycles, and holds one thing per file", () => {
    expect(cycles(new Map(ofPackages.map(({ file, imports }) => [file, imports])))).toEqual([]);
    expect(ofPackages.filter(({ lines }) => lines > MAX_LINES)).toEqual([]);
  });
});

describe("src/platform/", () => {
  const allowed = arrowsOf(Object.entries(PLATFORM_ROOMS));
  const used = arrowsOf(folderGraph("src/platform"));

  it("has the rooms of the table, and nothing outside of them", () => {
    expect(globSync("src/platform/*.ts")).toEqual([]);
    expect([...folderGraph("src/platform").keys()].sort()).toEqual(Object.keys(PLATFORM_ROOMS).sort());
  });

  it("has no arrow between its rooms that the table does not allow", () => {
    const advice =
      "hand in what the room needs, or move the file; else a new arrow for the table and CONTRIBUTING";
    expect(
      used.filter((arrow) => !allowed.includes(arrow)),
      advice,
    ).toEqual([]);
  });

  it("uses every arrow that the table allows", () => {
    expect(
      allowed.filter((arrow) => !used.includes(arrow)),
      "take it out of the table",
    ).toEqual([]);
  });

  it("has no arrow upwards: a room imports those that the table has before it", () => {
    const order = Object.keys(PLATFORM_ROOMS);
    const upwards = Object.entries(PLATFORM_ROOMS).flatMap(([from, targets]) =>
      targets.filter((to) => order.indexOf(to) >= order.indexOf(from)).map((to) => `${from} -> ${to}`),
    );
    expect(order.length).toBeGreaterThan(0);
    expect(upwards).toEqual([]);
  });

  it("does not refer to the product: a service passes in what is its own, or states it in its document", () => {
    const found = files
      .filter(({ file }) => file.startsWith("src/platform/"))
      .flatMap(({ file, text }) => [...text.matchAll(PRODUCT_WORDS)].map(([word]) => ({ file, word })));
    const stays = (at: { file: string; word: string }) =>
      STAYING_WORDS.some(({ file, words }) => file === at.file && words.test(at.word));
    expect(found.filter((at) => !stays(at))).toEqual([]);
    const unneeded = STAYING_WORDS.filter(({ file }) => !found.some((at) => at.file === file));
    expect(unneeded, "take the exception out").toEqual([]);
  });
});

describe("test/", () => {
  it("mirrors src/: each folder has the name of the one that it tests", () => {
    const folders = ["auth", "push", "platform", "development"].flatMap((name) => foldersOf(`test/${name}`));
    expect(folders.length).toBeGreaterThan(4);
    const others = folders.filter((folder) => !existsSync(folder.replace("test/", "src/")));
    expect(others).toEqual(Object.keys(OWN_TEST_FOLDERS));
  });
});

describe.each(foldersOf("src"))("the README of %s", (folder) => {
  const file = `${folder}/README.md`;
  const text = existsSync(file) ? readFileSync(file, "utf8").trimEnd() : "";

  it("states in a few lines what the folder owns, and where to begin", () => {
    expect(text, `${file} is missing or empty`).not.toBe("");
    expect(text.split("\n").length, "lines").toBeLessThanOrEqual(MAX_README_LINES);
    const [, first = ""] = /Begin with \[`([^`]+)`\]\(\1\)/.exec(text) ?? [];
    expect(first, "Begin with [`file`](file)").not.toBe("");
    expect(existsSync(join(folder, first)), `${first} is in ${folder}`).toBe(true);
  });
});

describe("package.json", () => {
  it("has no dependency without a reason in CONTRIBUTING.md", () => {
    const manifest: Partial<Record<string, Record<string, string>>> = JSON.parse(
      readFileSync("package.json", "utf8"),
    );
    const reasons = readFileSync("CONTRIBUTING.md", "utf8");
    const names = Object.keys({ ...manifest["dependencies"], ...manifest["devDependencies"] });
    expect(names.filter((name) => !reasons.includes(`\`${name}\``))).toEqual([]);
  });

  it("starts the server as the image does", () => {
    const { start }: Partial<Record<string, string>> = JSON.parse(
      readFileSync("package.json", "utf8"),
    ).scripts;
    const [, command = "[]"] = /^CMD (.+)$/m.exec(readFileSync("Dockerfile", "utf8")) ?? [];
    expect(JSON.parse(command).join(" ")).toBe(start);
  });
});
