/** Reads settings by a table, whose rows say parsing, defaults, validation and documentation. Collects all problems. */
import type * as v from "valibot";
import { type EnvironmentVariables, findText, isRereadable, isServiceLink, quoted } from "./environment.ts";
import {
  type Environment,
  expectationOf,
  isQuotable,
  parse,
  type SettingKind,
  type TextSchema,
} from "./kinds.ts";

export interface Setting<T> {
  /** One sentence for the documentation. */
  readonly description: string;
  readonly kind: SettingKind<T>;
  /** A value that is valid in production; unless given, the default. */
  readonly example?: string;
  /** Instead of `example`, for secrets and long values: the name of a file. */
  readonly exampleFile?: string;
  /** No message may show the value. */
  readonly secret?: true;
  /** Text of the default, in both environments. A word in `<>` is a placeholder, see {@link ReadOptions}. */
  readonly default?: string;
  readonly development?: string;
  readonly production?: string;
  /** Production must set it: always, or only for a task such as "migrate". */
  readonly required?: true | string;
}

/** Rows by the names of their variables, without prefix. */
export type SettingsTable = Readonly<Record<string, Setting<unknown>>>;

/** Whether a value is defined in every environment, because each has a default or requires the setting. */
type IsDefinite<Row> = Row extends { default: string } | { development: string; production: string }
  ? true
  : Row extends { development: string; required: true }
    ? true
    : false;

type OutputOf<Kind> = Kind extends (environment: Environment) => TextSchema<infer T>
  ? T
  : Kind extends TextSchema<unknown>
    ? v.InferOutput<Kind>
    : never;

type ValueOf<Row extends Setting<unknown>> =
  | OutputOf<Row["kind"]>
  | (IsDefinite<Row> extends true ? never : undefined);

export type SettingValues<Table extends SettingsTable> = {
  readonly [Name in keyof Table]: ValueOf<Table[Name]>;
};

export interface SettingProblem {
  /** The variable to change. */
  readonly name: string;
  /** A phrase that follows the name. Quotes no secret. */
  readonly what: string;
  readonly example: string;
}

/** EX_CONFIG of sysexits.h: the exit code of a program after a {@link SettingsError}. */
export const exitBadSettings = 78;

export class SettingsError extends Error {
  override readonly name = "SettingsError";
  readonly problems: readonly SettingProblem[];

  constructor(problems: readonly SettingProblem[]) {
    const count = problems.length === 1 ? "1 setting is" : `${problems.length} settings are`;
    const lines = problems.map(({ name, what, example }) => `  ${name} ${what}.\n      Example: ${example}`);
    super([`${count} not right:`, ...lines].join("\n"));
    this.problems = problems;
  }
}

export interface Reading<T> {
  /** The settings, with defaults for invalid values, so that all problems are found; undefined where there is none. */
  readonly value: T | undefined;
  readonly problems: readonly SettingProblem[];
}

/** The result of reading a table, with the members that checks across several settings need. */
export interface TableReading<Table extends SettingsTable> extends Reading<SettingValues<Table>> {
  /** The values without problems. */
  readonly valid: Partial<SettingValues<Table>>;
  /** Whether the environment sets a row of the table, to a valid value or not. */
  readonly isGiven: (name: keyof Table & string) => boolean;
  /** Whether the row was read from a file that can be read again. */
  readonly isRereadable: (name: keyof Table & string) => boolean;
  /** Makes a problem of a row of the table, with the name of the variable that sets it. */
  readonly problem: (name: keyof Table & string, what: string) => SettingProblem;
}

export interface ReadOptions {
  readonly environment: Environment;
  /** The prefix of names that override the plain ones, as in "AUTH_". */
  readonly prefix?: string;
  /** The values of placeholders in defaults. Undefined: there is no default. May throw a SettingsError. */
  readonly placeholders?: Readonly<Record<string, () => string | undefined>>;
  /** The task of this process, if it makes further settings required. */
  readonly task?: string;
}

/** The prefix of names that override the plain ones for a service, as in `AUTH_` for "auth". */
export function servicePrefix(service: string): string {
  return `${service.toUpperCase()}_`;
}

/** Reads a table; returns problems instead of throwing them. */
export function resolveSettings<const Table extends SettingsTable>(
  table: Table,
  env: EnvironmentVariables,
  options: ReadOptions,
): TableReading<Table> {
  const rows = Object.entries(table).map(([name, row]) => ({
    name,
    row,
    ...resolve(name, row, env, options),
  }));
  const valuesOf = (some: typeof rows) => Object.fromEntries(some.map(({ name, value }) => [name, value]));
  const variables = new Map(rows.map(({ name, variable }) => [name, variable]));
  const isUsable = rows.every(({ row, value }) => value !== undefined || !isDefinite(row));
  return {
    // Each row's value has its kind's type, but TypeScript cannot infer that for the object of all of them.
    value: isUsable ? (valuesOf(rows) as SettingValues<Table>) : undefined,
    valid: valuesOf(rows.filter(({ problems }) => problems.length === 0)) as Partial<SettingValues<Table>>,
    problems: distinctProblems(rows.flatMap(({ problems }) => problems)),
    isGiven: (name) => variables.get(name) !== undefined,
    isRereadable: (name) => isRereadable(variables.get(name), env),
    problem: (name, what) => {
      const variable = variables.get(name) ?? name;
      return { name: variable, what, example: exampleOf(name, table[name], variable) };
    },
  };
}

/** A setting that was read again while the process runs, or why it could not be. Quotes no secret. */
export type Reread<T> = { readonly value: T } | { readonly problem: string };

export function rereadFrom<T>({ value, problems: [problem] }: Reading<T>): Reread<T> {
  if (problem) return { problem: `${problem.name} ${problem.what}` };
  return value === undefined ? { problem: "the file is empty" } : { value };
}

/** The settings of a reading without problems. @throws SettingsError with every problem */
export function valueOrThrow<T>(reading: Reading<T>): T {
  if (reading.value === undefined || reading.problems.length > 0) throw new SettingsError(reading.problems);
  return reading.value;
}

type Readings = Readonly<Record<string, Reading<unknown>>>;

type Joined<All extends Readings> = {
  readonly [Name in keyof All]: Exclude<All[Name]["value"], undefined>;
};

/** The values of all readings, by name. @throws SettingsError with every problem of every reading */
export function joinReadings<All extends Readings>(readings: All): Joined<All> {
  const problems = distinctProblems(Object.values(readings).flatMap((reading) => reading.problems));
  if (problems.length > 0) throw new SettingsError(problems);
  const values = Object.entries(readings).map(([name, reading]) => [name, valueOrThrow(reading)]);
  return Object.fromEntries(values) as Joined<All>;
}

/** {@link IsDefinite} at run time. */
function isDefinite(row: Setting<unknown>): boolean {
  const isElsewhere = row.production !== undefined || row.required === true;
  return row.default !== undefined || (row.development !== undefined && isElsewhere);
}

/** A valid assignment, with the prefix of the variable that it corrects. */
export function exampleOf(name: string, row: Setting<unknown> | undefined, variable = name): string {
  const { exampleFile, example = row?.default ?? row?.production } = row ?? {};
  const prefix = variable.slice(0, Math.max(0, variable.indexOf(name)));
  return exampleFile
    ? `${prefix}${name}_FILE=/run/secrets/${exampleFile}`
    : `${prefix}${name}=${example ?? ""}`;
}

const kubernetesSetsIt =
  "Kubernetes sets it so for a Service of that name, unless the Pod has enableServiceLinks: false";

interface Resolved {
  /** The variable that sets the row; undefined if none does. */
  readonly variable?: string;
  readonly value: unknown;
  readonly problems: readonly SettingProblem[];
}

function resolve(
  name: string,
  row: Setting<unknown>,
  env: EnvironmentVariables,
  options: ReadOptions,
): Resolved {
  const found = findText(name, env, options.prefix);
  const variable = found?.name ?? name;
  const problem = (what: string) => ({ name: variable, what, example: exampleOf(name, row, variable) });
  if (found === undefined) {
    const isRequired = row.required === true || (row.required !== undefined && row.required === options.task);
    if (!isRequired || options.environment !== "production") return defaultOf(name, row, options);
    return { value: undefined, problems: [problem(`is missing; it must be ${expectationOf(row.kind)}`)] };
  }
  const parsed =
    "what" in found ? { problems: [found.what] } : parse(row.kind, found.text, options.environment);
  if ("value" in parsed) return { variable, value: parsed.value, problems: [] };
  const isShown = "text" in found && !row.secret && isQuotable(row.kind);
  const but = isShown ? `, but is ${quoted(found.text)}` : "";
  const why = "text" in found && isServiceLink(variable, found.text) ? `; ${kubernetesSetsIt}` : "";
  const { value } = defaultOf(name, row, options);
  return { variable, value, problems: parsed.problems.map((what) => problem(what + but + why)) };
}

function defaultOf(name: string, row: Setting<unknown>, options: ReadOptions): Resolved {
  const template = row.default ?? row[options.environment];
  if (template === undefined) return { value: undefined, problems: [] };
  let missing = false;
  try {
    const text = template.replace(/<([^<>]+)>/g, (placeholder, word: string) => {
      const stands = options.placeholders?.[word];
      if (stands === undefined) throw new Error(`${name}: the placeholder ${placeholder} is unknown`);
      const replacement = stands();
      missing ||= replacement === undefined;
      return replacement ?? "";
    });
    if (missing) return { value: undefined, problems: [] };
    const parsed = parse(row.kind, text, options.environment);
    if ("value" in parsed) return { value: parsed.value, problems: [] };
    const example = exampleOf(name, row);
    const problems = parsed.problems.map((what) => ({ name, what: `has no default: ${what}`, example }));
    return { value: undefined, problems };
  } catch (error) {
    if (error instanceof SettingsError) return { value: undefined, problems: error.problems };
    throw error;
  }
}

function distinctProblems(problems: readonly SettingProblem[]): readonly SettingProblem[] {
  return [...new Map(problems.map((problem) => [`${problem.name} ${problem.what}`, problem])).values()];
}
