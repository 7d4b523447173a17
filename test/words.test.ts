/**
 * Holds the table "Words" of CONTRIBUTING.md over the identifiers of src/: none has a word that the table replaces.
 * Strings, SQL and comments are not identifiers, and are not read.
 */
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import ts from "typescript";
import { expect, it } from "vitest";
import { root } from "./support/program.ts";

/** Replaced words, in the parts of camel case, each with the word to use. */
const REPLACED: readonly (readonly [words: string, use: string])[] = [
  ["answer", "response"],
  ["answers", "responses"],
  ["answered", "responded"],
  ["answering", "responding"],
  ["unanswered", "without a response"],
  ["reply", "response"],
  ["replies", "responses"],
  ["pace", "rate limiter"],
  ["paced", "rate limited"],
  ["told", "the noun of the message"],
  ["tells", "the noun of the message"],
  ["whoever", "caller, client or process"],
  ["in time", "timeout or deadline"],
  ["as it is", "unchanged"],
  ["put down", "release"],
  ["in hand", "held"],
];

/** Identifiers that keep such a word, and why. */
const STAYING: readonly { readonly files: RegExp; readonly identifiers: RegExp; readonly why: string }[] = [
  {
    files: /^src\/development\/provider-fakes\//,
    identifiers: /^(answers?|answeredAt)$/,
    why: "Members of the control API and of the ledger of the fakes.",
  },
];

/** The words of an identifier, in lower case: `lastTryAt` is "last try at". */
function wordsOf(identifier: string): string {
  const parts = identifier.match(/[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+/g) ?? [];
  return parts.join(" ").toLowerCase();
}

function identifiersOf(file: string): ReadonlySet<string> {
  const found = new Set<string>();
  const visit = (node: ts.Node): void => {
    if (ts.isIdentifier(node) || ts.isPrivateIdentifier(node)) found.add(node.text);
    ts.forEachChild(node, visit);
  };
  visit(ts.createSourceFile(file, readFileSync(join(root, file), "utf8"), ts.ScriptTarget.Latest));
  return found;
}

function problemsOf(identifier: string, file: string): string[] {
  const stays = STAYING.some(({ files, identifiers }) => files.test(file) && identifiers.test(identifier));
  if (stays) return [];
  const words = ` ${wordsOf(identifier)} `;
  return REPLACED.filter(([replaced]) => words.includes(` ${replaced} `)).map(
    ([replaced, use]) => `${identifier}: "${replaced}" is called "${use}"`,
  );
}

it.each([
  ["lateAnswer", 1],
  ["answersPerUser", 1],
  ["isUnanswered", 1],
  ["#putDown", 1],
  ["in_time", 1],
  ["MAX_PACE", 1],
  ["HTTPReply", 1],
  ["replyingTo", 0],
  ["space", 0],
  ["timeInUse", 0],
  ["responseAt", 0],
])("finds replaced words in %s: %i", (identifier, count) => {
  expect(problemsOf(identifier, "src/main.ts")).toHaveLength(count);
});

it("no identifier of src/ has a word that the table of words replaces", () => {
  const files = globSync("src/**/*.ts", { cwd: root });
  expect(files.length).toBeGreaterThan(100);
  expect(identifiersOf("src/main.ts").size).toBeGreaterThan(10);
  const found = files.flatMap((file) =>
    [...identifiersOf(file)]
      .flatMap((identifier) => problemsOf(identifier, file))
      .map((problem) => `${file}: ${problem}`),
  );
  expect(found.toSorted()).toEqual([]);
});
