/** The variables of texts: `{{name}}` stands for a recipient's own value. */
import type { Text, Variables } from "./content.ts";

const placeholder = /\{\{ *([A-Za-z][A-Za-z0-9_]{0,63}) *\}\}/g;

export const isVariableName = (name: string): boolean => /^[A-Za-z][A-Za-z0-9_]{0,63}$/.test(name);

/** The names of the variables in texts. */
export function variableNames(texts: Iterable<Text>): ReadonlySet<string> {
  const names = new Set<string>();
  for (const { title, message } of texts) {
    for (const [, name = ""] of `${title}\n${message}`.matchAll(placeholder)) names.add(name);
  }
  return names;
}

/** Whether a text has opening braces that begin no name, such as those of another language of templates. */
export function hasOtherBraces({ title, message }: Text): boolean {
  return `${title}\n${message}`.replaceAll(placeholder, "").includes("{{");
}

/** The names for which a recipient has no value. */
export function missingVariables(names: ReadonlySet<string>, variables: Variables): readonly string[] {
  return [...names].filter((name) => !Object.hasOwn(variables, name));
}

/** The text with a recipient's values. A value is not looked into: braces in it stay. */
export function fillText({ title, message }: Text, variables: Variables): Text {
  const fill = (text: string) =>
    text.replaceAll(placeholder, (whole, name: string) =>
      Object.hasOwn(variables, name) ? (variables[name] ?? whole) : whole,
    );
  return { title: fill(title), message: fill(message) };
}

/** Of each variable, the value that makes payloads longest. */
export function longestVariables(all: Iterable<Variables>): Variables {
  const longest = new Map<string, string>();
  const bytes = (value: string) => Buffer.byteLength(JSON.stringify(value));
  for (const variables of all) {
    for (const [name, value] of Object.entries(variables)) {
      if (bytes(value) > bytes(longest.get(name) ?? "")) longest.set(name, value);
    }
  }
  return Object.fromEntries(longest);
}
