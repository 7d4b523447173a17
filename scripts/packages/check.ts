/**
 * `npm run check:packages`: packs the packages and looks at them as users get them, in a temporary folder: their form, their
 * types, their size, and that each entry is imported by each runtime. Then the tests that need them installed. It needs
 * the registry. `-- --packed` leaves those tests out, and `-- --image` looks at the server's image alone.
 * `-- --tarballs <folder>` keeps there what was packed, if all is well. With it, and where `CI` is set, nothing that is
 * missing is left out: runtimes, and Chromium.
 */
import { cpSync, globSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { stripVTControlCharacters } from "node:util";
import { gzipSync } from "node:zlib";
import { readArguments } from "../../src/command.ts";
import { ROOT, run, say, usageIn } from "../command.ts";
import { checkImage } from "./image.ts";
import { createInstallation } from "./installation.ts";
import { installRuntimes } from "./runtimes.ts";

const { values: asked } = readArguments({
  usage: usageIn(import.meta.filename),
  options: { packed: { type: "boolean" }, image: { type: "boolean" }, tarballs: { type: "string" } },
});
if (asked.tarballs !== undefined) process.env["CI"] ||= "true";

const names = ["contracts", "client", "verifier"] as const;
const maxCoreBytes = 8 * 1024;
const needsPeers = /connect|grpc|_pb$/;
const peers = ["@bufbuild/protobuf@2", "@connectrpc/connect@2", "@grpc/grpc-js@1", "@types/node@24"];

const temporary = mkdtempSync(join(tmpdir(), "gatepost-packages-"));
const tools = createInstallation(join(temporary, "tools"));
/** A project with the packages and nothing else, and one with what Connect, gRPC and the protos need. */
const alone = createInstallation(join(temporary, "alone"));
const withPeers = createInstallation(join(temporary, "peers"));
const tsc = join(ROOT, "node_modules/.bin/tsc");
const esbuild = join(tools.folder, "node_modules/.bin/esbuild");
const consumer = join(ROOT, "test/packages/consumer");
const tarballs: string[] = [];

/** The entries that can be imported, without the documents. */
function entriesOf(name: (typeof names)[number]): string[] {
  const { exports } = JSON.parse(readFileSync(join(ROOT, "packages", name, "package.json"), "utf8"));
  const paths = Object.keys(exports).filter((path) => !/\*|package\.json$/.test(path));
  return paths.map((path) => `@gatepost/${name}${path.slice(1)}`);
}
const entries = names.flatMap(entriesOf);

async function pack(): Promise<string> {
  for (const name of names) {
    const args = ["pack", "--silent", "--pack-destination", temporary, `./packages/${name}`];
    const { ok, stdout, output } = await run("npm", args);
    if (!ok) throw new Error(output);
    tarballs.push(join(temporary, stdout.trim().split("\n").at(-1) ?? ""));
  }
  await tools.install("publint@0.3.25", "@arethetypeswrong/cli@0.18.5", "esbuild@0.28.2");
  await alone.install(...tarballs);
  await withPeers.install(...tarballs, ...peers);
  return tarballs.map((file) => file.slice(temporary.length + 1)).join(", ");
}

async function form(): Promise<string> {
  for (const tarball of tarballs) {
    await tools.run("publint", "--strict", tarball);
    await tools.run("attw", tarball, "--profile", "esm-only", "--no-color");
  }
  const declarations = globSync("node_modules/@gatepost/*/dist/**/*.d.ts", { cwd: alone.folder });
  const wrong = declarations.filter((file) =>
    /(from|import) ?\(?"[^"]+(?<!\.d)\.ts"/.test(readFileSync(join(alone.folder, file), "utf8")),
  );
  if (declarations.length === 0 || wrong.length > 0) throw new Error(`They name source files: ${wrong}`);
  return `${declarations.length} declarations, and none names a source file`;
}

const strict = {
  ...{ target: "ES2022", noEmit: true, strict: true, exactOptionalPropertyTypes: true },
  ...{ noUncheckedIndexedAccess: true, skipLibCheck: false, lib: ["ES2022", "DOM", "ESNext.Disposable"] },
};
const resolutions = {
  nodenext: { module: "NodeNext", moduleResolution: "NodeNext" },
  bundler: { module: "ESNext", moduleResolution: "Bundler" },
};

/** The programs that the client's README shows. */
function shown(): string[] {
  const readme = readFileSync(join(ROOT, "packages/client/README.md"), "utf8");
  return [...readme.matchAll(/```ts\n(.*?)```/gs)].map(([, program = ""], index) => {
    withPeers.write(`readme${index}.ts`, program);
    return `readme${index}.ts`;
  });
}

async function types(): Promise<string> {
  cpSync(join(consumer, "alone.ts"), join(alone.folder, "alone.ts"));
  cpSync(join(consumer, "peers.ts"), join(withPeers.folder, "peers.ts"));
  for (const [installation, files, types] of [
    [alone, ["alone.ts"], []],
    [withPeers, ["peers.ts", ...shown()], ["node"]],
  ] as const) {
    for (const [name, resolution] of Object.entries(resolutions)) {
      const compilerOptions = { ...strict, ...resolution, types };
      installation.write(`${name}.json`, JSON.stringify({ compilerOptions, files }));
      await installation.run(tsc, "-p", `${name}.json`);
    }
  }
  return `strictest, under ${Object.keys(resolutions).join(" and ")}`;
}

/** A switch over all codes of a union compiles; one without any one of them does not. */
async function codes(): Promise<string> {
  const text = readFileSync(join(ROOT, "gen/codes.ts"), "utf8");
  const unions = [...text.matchAll(/export type (\w+) =((?:\n {2}\| "\w+")+);/g)].map(
    ([, union = "", list = ""]) => [union, list.match(/\w+/g) ?? []] as const,
  );
  // A line each: the compiler names those that are wrong.
  const switches = unions.flatMap(([union, all]) =>
    [undefined, ...all].map((left) => {
      const cases = all.map((code) => (code === left ? "" : `case "${code}": `)).join("");
      const body = `switch (code) { ${cases}return ""; default: return code satisfies never; }`;
      return { left, text: `(code: ${union}): string => { ${body} };` };
    }),
  );
  const imported = `import type { ${unions.map(([union]) => union).join(", ")} } from "@gatepost/client";`;
  alone.write("codes.ts", [imported, ...switches.map(({ text }) => text)].join("\n"));
  const compilerOptions = { ...strict, ...resolutions.nodenext, types: [] };
  alone.write("codes.json", JSON.stringify({ compilerOptions, files: ["codes.ts"] }));
  const said = await alone.run(tsc, "-p", "codes.json").catch((error: Error) => error.message);
  const wrong = [...said.matchAll(/^codes\.ts\((\d+),.* does not satisfy the expected type 'never'/gm)];
  const expected = switches.flatMap(({ left }, index) => (left === undefined ? [] : [index + 2]));
  if (
    unions.length !== text.match(/^export type /gm)?.length ||
    wrong.map(([, line]) => Number(line)).join() !== expected.join()
  )
    throw new Error(`Of the switches of ${unions.length} unions others than expected compile:\n${said}`);
  return `${expected.length} of ${unions.map(([union]) => union).join(", ")}`;
}

async function size(): Promise<string> {
  alone.write("core.js", 'export * from "@gatepost/client";');
  const args = ["--bundle", "--minify", "--format=esm", "--platform=neutral", "--outfile=core.min.js"];
  await alone.run(esbuild, "core.js", ...args);
  const bytes = gzipSync(readFileSync(join(alone.folder, "core.min.js")), { level: 9 }).length;
  if (bytes > maxCoreBytes) throw new Error(`${bytes} bytes, and at most ${maxCoreBytes}`);
  return `${bytes} bytes of ${maxCoreBytes}, minified and compressed`;
}

async function imports(): Promise<string> {
  const { runtimes, missing } = await installRuntimes(tools);
  const script = (list: readonly string[]) => list.map((entry) => `await import("${entry}");\n`).join("");
  const programs = ["files.js", "stalled-auth.js", "auth-in-trouble.js"];
  for (const program of programs) cpSync(join(consumer, program), join(alone.folder, program));
  const ownEntries = entries.filter((entry) => !needsPeers.test(entry));
  alone.write("import.mjs", script([...ownEntries, ...programs.map((program) => `./${program}`)]));
  withPeers.write("import.mjs", script(entries));
  for (const { command } of runtimes) {
    const [file, ...args] = command;
    for (const installation of [alone, withPeers]) await installation.run(file, ...args, "import.mjs");
  }
  const named = [...runtimes.map(({ name }) => name), ...missing.map((name) => `not ${name}`)];
  return `${entries.length} entries, files kept, and auth in trouble, by ${named.join(", ")}`;
}

async function tests(): Promise<string> {
  const { ok, output } = await run("vitest", ["run", "--config", "test/packages/vitest.config.ts"], true);
  if (!ok) throw new Error("See above.");
  return /Tests .*/.exec(stripVTControlCharacters(output))?.[0] ?? "";
}

const image = { image: () => checkImage(join(temporary, "image")) };
const all = {
  "packed and installed": pack,
  "form (publint, attw)": form,
  types,
  codes,
  "size of the core": size,
  "imported by": imports,
  ...image,
  ...(!asked.packed && { tests }),
};
const steps = asked.image ? image : all;

try {
  for (const [name, step] of Object.entries(steps)) {
    const outcome = await step().catch((error: unknown) => error);
    const isOk = typeof outcome === "string";
    say(`${isOk ? "ok    " : "FAILED"} ${name}: ${isOk ? outcome : outcome}`);
    if (!isOk) process.exitCode = 1;
  }
  if (asked.tarballs !== undefined && process.exitCode === undefined)
    for (const tarball of tarballs) cpSync(tarball, join(resolve(asked.tarballs), basename(tarball)));
} finally {
  rmSync(temporary, { recursive: true, force: true });
}
