/**
 * `npm run gen`: generates all files that are derived from the contracts and the settings tables. `-- --check` only
 * reports differences. Both generate into a temporary tree and compare: an unchanged file is never written, so a
 * server that watches the files is not restarted.
 */
import { existsSync } from "node:fs";
import { cp, glob, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import openapiTS, { astToString } from "openapi-typescript";
import { parse } from "yaml";
import { readArguments } from "../src/command.ts";
import { asyncapiDocument, publishedEvents } from "./asyncapi.ts";
import { chartValues } from "./chart-values.ts";
import { outputOf, ROOT, say, usageIn } from "./command.ts";
import { errorCodes, operationTables } from "./openapi/typed-operations.ts";
import { settingsTable } from "./settings-doc.ts";

const { values: asked } = readArguments({
  usage: usageIn(import.meta.filename),
  options: { check: { type: "boolean" } },
});

/** One kind of generated file. */
interface Generator {
  /** The generated file, or folder with everything in it, relative to the root. */
  readonly output: string;
  /** Writes `output` below `target`, which stands for the root. */
  generate(target: string): Promise<void>;
}

/** A file that differs from the generated one. */
interface Drift {
  readonly file: string;
  readonly kind: "missing" | "outdated" | "not generated any more";
}

const SETTINGS_PAGE = "docs/settings.md";
const SETTINGS_BEGIN = "<!-- settings:begin -->";
const SETTINGS_END = "<!-- settings:end -->";

/** For every OpenAPI document: TypeScript types of its operations, and the document as JSON, which the servers read. */
const openapiDocuments: Generator = {
  output: "gen/openapi",
  async generate(target) {
    await mkdir(join(target, "gen/openapi"), { recursive: true });
    for await (const document of glob("openapi/*.yaml", { cwd: ROOT })) {
      const types = astToString(await openapiTS(pathToFileURL(join(ROOT, document))));
      const header = `/** Generated from ${document} by \`npm run gen\`. Do not edit. */\n\n`;
      const file = join(target, "gen/openapi", basename(document, ".yaml"));
      await writeFile(`${file}.ts`, header + types);
      const json: unknown = parse(await readFile(join(ROOT, document), "utf8"));
      await writeFile(`${file}.json`, `${JSON.stringify(json, undefined, 1)}\n`);
    }
  },
};

/** For typed clients: where each operation is, and the codes of errors. */
const typedOperations: readonly Generator[] = [
  {
    output: "gen/operations.ts",
    generate: async (target) => writeFile(join(target, "gen/operations.ts"), await operationTables()),
  },
  {
    output: "gen/codes.ts",
    generate: async (target) => writeFile(join(target, "gen/codes.ts"), await errorCodes()),
  },
];

/** Messages and service descriptors of every proto file. */
const protoMessages: Generator = {
  output: "gen/proto",
  async generate(target) {
    await outputOf("buf", "generate", "--template", "proto/buf.gen.yaml", "--output", target);
  },
};

/** For each folder of protos with a version: a FileDescriptorSet of its files and their imports, comments included. */
const protoDescriptorSets: Generator = {
  output: "gen/descriptors",
  async generate(target) {
    await mkdir(join(target, "gen/descriptors"), { recursive: true });
    for await (const version of glob("proto/*/v1", { cwd: ROOT })) {
      const folder = dirname(version);
      const file = join(target, "gen/descriptors", `${basename(folder)}.binpb`);
      await outputOf("buf", "build", "--path", folder, "--as-file-descriptor-set", "--output", file);
    }
  },
};

/** For each service: an AsyncAPI document of the events that it publishes through a broker. */
const asyncapiDocuments: Generator = {
  output: "gen/asyncapi",
  async generate(target) {
    await mkdir(join(target, "gen/asyncapi"), { recursive: true });
    for (const events of publishedEvents) {
      const file = join(target, "gen/asyncapi", `${events.name}.json`);
      await writeFile(file, `${JSON.stringify(asyncapiDocument(events), undefined, 1)}\n`);
    }
  },
};

/** The settings: the part of their page between the two markers. */
const settingsPage: Generator = {
  output: SETTINGS_PAGE,
  async generate(target) {
    const old = await readFile(join(ROOT, SETTINGS_PAGE), "utf8");
    const [begin, end] = [old.indexOf(SETTINGS_BEGIN), old.indexOf(SETTINGS_END)];
    if (begin < 0 || end < begin) {
      throw new Error(`${SETTINGS_PAGE} has no place for them: ${SETTINGS_BEGIN}, then ${SETTINGS_END}.`);
    }
    const before = old.slice(0, begin + SETTINGS_BEGIN.length);
    const page = `${before}\n\n${settingsTable().trim()}\n\n${old.slice(end)}`;
    await mkdir(join(target, dirname(SETTINGS_PAGE)), { recursive: true });
    await writeFile(join(target, SETTINGS_PAGE), page);
  },
};

/** The schema of the Helm chart's values, which knows the settings. */
const chartSchema: Generator = {
  output: "deploy/helm/gatepost/values.schema.json",
  async generate(target) {
    const file = join(target, this.output);
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, `${JSON.stringify(chartValues, undefined, 1)}\n`);
  },
};

/** Characters that a password must have: shorter common ones need no list. */
const MIN_PASSWORD_LENGTH = 8;
const COMMON_PASSWORDS = 10_000;
const PASSWORDS_OF_LINE = 20;

/**
 * The most common of the passwords that are long enough, in lower case, from a list that is ordered by frequency. The
 * first line names the source; below, white space separates them, as none of them has any.
 */
const commonPasswords: Generator = {
  output: "gen/common-passwords.txt",
  async generate(target) {
    const { dictionary } = await import("@zxcvbn-ts/language-common");
    const listed: readonly string[] = Object.values(dictionary["passwords-common"]);
    const passwords = listed.filter(({ length }) => length >= MIN_PASSWORD_LENGTH).slice(0, COMMON_PASSWORDS);
    const source =
      "@zxcvbn-ts/language-common, Copyright (c) 2012-2016 Dan Wheeler and Dropbox, Inc., Copyright (c) 2021 @zxcvbn-ts, MIT License";
    await mkdir(join(target, "gen"), { recursive: true });
    const lines = Array.from({ length: COMMON_PASSWORDS / PASSWORDS_OF_LINE }, (_, line) =>
      passwords.slice(line * PASSWORDS_OF_LINE, (line + 1) * PASSWORDS_OF_LINE).join(" "),
    );
    await writeFile(join(target, "gen/common-passwords.txt"), `${[source, ...lines].join("\n")}\n`);
  },
};

const GENERATORS: readonly Generator[] = [
  openapiDocuments,
  ...typedOperations,
  protoMessages,
  protoDescriptorSets,
  asyncapiDocuments,
  settingsPage,
  chartSchema,
  commonPasswords,
];

/** The files at or below `path`, relative to `root`; none if there is no such path. */
async function filesAt(root: string, path: string): Promise<Set<string>> {
  if (!existsSync(join(root, path))) return new Set();
  const entries = await readdir(join(root, path), { recursive: true, withFileTypes: true }).catch(() => null);
  if (entries === null) return new Set([path]);
  const files = entries.filter((entry) => entry.isFile());
  return new Set(files.map((entry) => join(entry.parentPath, entry.name).slice(root.length + 1)));
}

/** The differences between the repository and a freshly generated tree. */
async function compare(fresh: string, output: string): Promise<Drift[]> {
  const wanted = await filesAt(fresh, output);
  const present = await filesAt(ROOT, output);
  const drifts: Drift[] = [];
  for (const file of [...wanted.union(present)].sort()) {
    if (!present.has(file)) drifts.push({ file, kind: "missing" });
    else if (!wanted.has(file)) drifts.push({ file, kind: "not generated any more" });
    else {
      const [a, b] = await Promise.all([readFile(join(fresh, file)), readFile(join(ROOT, file))]);
      if (!a.equals(b)) drifts.push({ file, kind: "outdated" });
    }
  }
  return drifts;
}

/** Replaces, creates or removes one file of the repository, as generated. */
async function apply(fresh: string, { file, kind }: Drift): Promise<void> {
  if (kind === "not generated any more") return rm(join(ROOT, file));
  await mkdir(dirname(join(ROOT, file)), { recursive: true });
  await cp(join(fresh, file), join(ROOT, file));
}

const check = asked.check;
const fresh = await mkdtemp(join(tmpdir(), "gatepost-gen-"));
try {
  const drifts: Drift[] = [];
  for (const generator of GENERATORS) {
    await generator.generate(fresh);
    drifts.push(...(await compare(fresh, generator.output)));
  }
  for (const drift of drifts) {
    if (!check) await apply(fresh, drift);
    say(`${check ? "" : "Updated "}${drift.file}: ${drift.kind}`);
  }
  if (drifts.length === 0) say("Everything generated is up to date.");
  else if (check) {
    say(`\n${drifts.length} generated file(s) drifted. Run \`npm run gen\` and commit what it writes.`);
    process.exitCode = 1;
  }
} finally {
  await rm(fresh, { recursive: true, force: true });
}
