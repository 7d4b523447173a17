/** Finds variables without effect: unused settings and misspelled names. Values are never shown. */
import { type EnvironmentVariables, isServiceLink } from "./environment.ts";

/** A setting of this version, for one of its uses. */
export interface KnownSetting {
  readonly name: string;
  /** Why the process does not use it, as in "SERVICES does not name push"; undefined if it does. */
  readonly unused?: string | undefined;
}

/**
 * One sentence for each variable that has no effect:
 * - settings all of whose uses are unused;
 * - unknown names that begin with one of our prefixes;
 * - unknown names one edit away from a known one of six letters or more: shorter ones resemble too many other names.
 *
 * @param prefixes prefixes of our names; no variable of the system, Node.js or npm may begin with one
 */
export function settingWarnings(
  env: EnvironmentVariables,
  known: readonly KnownSetting[],
  prefixes: readonly string[],
): readonly string[] {
  const uses = Map.groupBy(known, ({ name }) => name);
  const warnings: string[] = [];
  for (const [variable, value] of Object.entries(env)) {
    if (!value || !/^\w+$/.test(variable) || isServiceLink(variable, value)) continue;
    const usesOf = uses.get(variable) ?? uses.get(variable.replace(/_FILE$/, ""));
    if (usesOf) {
      const isUsed = usesOf.some(({ unused }) => unused === undefined);
      if (!isUsed) warnings.push(`${variable} is set, but is not used: ${usesOf[0]?.unused}`);
      continue;
    }
    const meant = uses.keys().find((name) => isNear(variable, name) || isNear(variable, `${name}_FILE`));
    const isOurs = prefixes.some((prefix) => variable.startsWith(prefix));
    if (meant) warnings.push(`${variable} is set, but is no setting; did you mean ${meant}?`);
    else if (isOurs) warnings.push(`${variable} is set, but is no setting of this version`);
  }
  return warnings;
}

/** Whether one edit makes the variable the name: a character inserted, deleted or replaced, or two swapped. */
export function isNear(variable: string, name: string): boolean {
  if (name.length < 6 || Math.abs(variable.length - name.length) > 1) return false;
  let start = 0;
  while (start < name.length && variable[start] === name[start]) start++;
  const [a, b] = [variable.slice(start), name.slice(start)];
  return (
    a.slice(1) === b.slice(1) ||
    a.slice(1) === b ||
    a === b.slice(1) ||
    (a[0] === b[1] && a[1] === b[0] && a.slice(2) === b.slice(2))
  );
}
