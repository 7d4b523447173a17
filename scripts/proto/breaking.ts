/**
 * Which changes of the protos break callers, as buf judges them, without those that proto/declared-breaks.yaml
 * declares. No rule of buf is turned off for a change that is deliberate: the next change of its kind is found.
 */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { parse } from "yaml";
import { ROOT, run } from "../command.ts";

/** A breaking change in buf's words. */
export interface ProtoBreak {
  /** The proto file, from the root. */
  readonly path: string;
  readonly message: string;
}

/** Deliberate changes for one reason. */
interface Declaration {
  /** The reason why the changes may be made without a new package. */
  readonly why: string;
  /** The changes in buf's words. */
  readonly changes: readonly string[];
}

export interface ProtoBreaks {
  readonly declared: readonly ProtoBreak[];
  readonly undeclared: readonly ProtoBreak[];
}

/**
 * Compares the protos with older ones.
 * @param folder with the older proto/ and buf.yaml
 * @throws if buf cannot compare them
 */
export async function protoBreaks(folder: string): Promise<ProtoBreaks> {
  const file = join(ROOT, "proto/declared-breaks.yaml");
  const declarations: readonly Declaration[] = parse(await readFile(file, "utf8"));
  const known = new Set(declarations.flatMap(({ changes }) => changes));
  const { ok, stdout, output } = await run("buf", [
    "breaking",
    "--against",
    folder,
    "--error-format",
    "json",
  ]);
  const lines = stdout.split("\n").filter((line) => line.startsWith("{"));
  if (!ok && lines.length === 0) throw new Error(`buf breaking failed:\n${output}`);
  const found = lines.map((line): ProtoBreak => JSON.parse(line));
  return {
    declared: found.filter(({ message }) => known.has(message)),
    undeclared: found.filter(({ message }) => !known.has(message)),
  };
}
