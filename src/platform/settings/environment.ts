/**
 * Finds the text of a setting. For a setting `NAME` it is the first of these that is set and not empty: `<prefix>NAME`,
 * the file named by `<prefix>NAME_FILE`, `NAME`, the file named by `NAME_FILE`.
 */
import { existsSync, readFileSync, statSync } from "node:fs";
import { codeOf } from "../base/error-code.ts";

/** The environment variables, as in `process.env`. */
export type EnvironmentVariables = Readonly<Record<string, string | undefined>>;

/** A variable with its text, or with its problem: a phrase that follows the variable's name. */
type FoundText = { readonly name: string } & ({ readonly text: string } | { readonly what: string });

/** The text of a setting; undefined if nothing sets it. */
export function findText(name: string, env: EnvironmentVariables, prefix = ""): FoundText | undefined {
  for (const variable of new Set([prefix + name, name])) {
    const fileVariable = `${variable}_FILE`;
    const text = env[variable];
    const path = env[fileVariable];
    if (text && path) return { name: variable, what: `is set, and so is ${fileVariable}; set one of them` };
    if (text) return { name: variable, text };
    if (path) {
      const content = readText(path);
      if ("what" in content || content.text !== "") return { name: fileVariable, ...content };
    }
  }
  return undefined;
}

/** Whether the variable names a file that can be read again: reading a pipe again would wait for ever. */
export function isRereadable(variable: string | undefined, env: EnvironmentVariables): boolean {
  const path = variable?.endsWith("_FILE") ? env[variable] : undefined;
  return path !== undefined && existsSync(path) && statSync(path).isFile();
}

/** Matches the variables that Kubernetes sets for each Service, such as `DB_SERVICE_HOST`. */
const serviceLink = /_SERVICE_(HOST|PORT(_\w+)?)$|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$/;

/** Whether Kubernetes has set the variable for a Service: one called db gives `DB_PORT` as `tcp://10.0.0.1:5432`. */
export function isServiceLink(variable: string, text: string): boolean {
  return serviceLink.test(variable) || (variable.endsWith("_PORT") && /^(tcp|udp|sctp):/.test(text));
}

/** Far more than any setting needs, but less than a log file that is named by mistake. */
const maxFileBytes = 1024 * 1024;

/** A file's text without one trailing newline. */
function readText(path: string): { readonly text: string } | { readonly what: string } {
  try {
    const stat = statSync(path);
    if (!stat.isFile() && !stat.isFIFO()) return { what: `names ${quoted(path)}, which is not a file` };
    if (stat.size > maxFileBytes) return { what: `names ${quoted(path)}, which is larger than 1 MiB` };
    const text = new TextDecoder("utf-8", { fatal: true }).decode(readFileSync(path));
    return { text: text.replace(/\r?\n$/, "") };
  } catch (error) {
    const reason = codeOf(error) ?? "unknown reason";
    return { what: `names ${quoted(path)}, which cannot be read as text (${reason})` };
  }
}

/** Text for a message: on one line, not too long, and without what may be credentials before an address. */
export function quoted(text: string): string {
  const shown = text.replace(/\S+/g, withoutCredentials);
  return JSON.stringify(shown.length > 200 ? `${shown.slice(0, 200)}…` : shown);
}

function withoutCredentials(word: string): string {
  const at = word.lastIndexOf("@");
  const [scheme = ""] = /^[a-z][a-z0-9+.-]*:\/\//i.exec(word) ?? [];
  return at < 0 ? word : `${scheme}***${word.slice(at)}`;
}
