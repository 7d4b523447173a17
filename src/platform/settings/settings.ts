/**
 * Settings: the one place that knows how they are read from an environment. A table of settings is data;
 * parsing, defaults, validation and the documentation come from its rows. Problems are gathered, never
 * thrown one by one, so that a deployment is put right in one go.
 */
import type * as v from "valibot";
import { type EnvironmentVariables, findText, quoted } from "./environment.ts";
import {
  type Environment,
  expectationOf,
  isQuotable,
  parse,
  type SettingKind,
  type TextSchema,
} from "./kinds.ts";

/** A row of a settings table. */
export interface Setting<T> {
  /** One sentence for the documentation. */
  readonly description: string;
  readonly kind: SettingKind<T>;
  /** A value that would do in production; unless given, the default. */
  readonly example?: string;
  /** In its place, for secrets and what is long: the name of a file. */
  readonly exampleFile?: string;
  /** Its value must appear in no message. */
  readonly secret?: true;
  /** Text of the default, in both environments. A word in `<>` is a placeholder, see {@link ReadOptions}. */
  readonly default?: string;
  /** Text of the default in development. */
  readonly development?: string;
  /** Text of the default in production. */
  readonly production?: string;
  /** Production must set it: always, or only for a task such as "migrate". */
  readonly required?: true | string;
}

/** Rows by the names of their variables, without prefix. */
export type SettingsTable = Readonly<Record<string, Setting<unknown>>>;

/** A value is there in every environment if each has a default or demands the setting. */
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

/** What a table's settings come to. */
export type SettingValues<Table extends SettingsTable> = {
  readonly [Name in keyof Table]: ValueOf<Table[Name]>;
};

/** Something wrong with one setting. */
export interface SettingProblem {
  /** The variable to change. */
  readonly name: string;
  /** A phrase that follows the name. Quotes no secret. */
  readonly what: string;
  /** An assignment that would do. */
  readonly example: string;
}

/** EX_CONFIG of sysexits.h: what a program exits with on a {@link SettingsError}. */
export const exitBadSettings = 78;

/** Settings that cannot be worked with: every problem that was found. */
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

/** Settings as far as they could be read. */
export interface Reading<T> {
  /**
   * The settings. Where there are problems, defaults stand in for what is wrong, so that further settings
   * can be read and their problems found too; undefined where even that is not possible.
   */
  readonly value: T | undefined;
  readonly problems: readonly SettingProblem[];
}

/** Reading of a table, with what checks across several of its settings need. */
export interface TableReading<Table extends SettingsTable> extends Reading<SettingValues<Table>> {
  /** The values that nothing is wrong with. */
  readonly valid: Partial<SettingValues<Table>>;
  /** Whether the environment sets a row of the table, well or badly. */
  readonly isGiven: (name: keyof Table & string) => boolean;
  /** A problem of a row of the table, under the variable that sets it. */
  readonly problem: (name: keyof Table & string, what: string) => SettingProblem;
}

export interface ReadOptions {
  readonly environment: Environment;
  /** Of names that override the plain ones, as in "AUTH_". */
  readonly prefix?: string;
  /** What the placeholders of defaults stand for. Undefined: there is no default. May throw a SettingsError. */
  readonly placeholders?: Readonly<Record<string, () => string | undefined>>;
  /** The task at hand, where it makes further settings required. */
  readonly task?: string;
}

/** What begins the names that override the plain ones for a service, as in `AUTH_` for "auth". */
export function servicePrefix(service: string): string {
  return `${service.toUpperCase()}_`;
}

/** Reads a table and reports what is wrong instead of throwing it. */
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
    // Each row's value is of its kind's type; no type can say so of the object that is built of them.
    value: isUsable ? (valuesOf(rows) as SettingValues<Table>) : undefined,
    valid: valuesOf(rows.filter(({ problems }) => problems.length === 0)) as Partial<SettingValues<Table>>,
    problems: withoutRepeats(rows.flatMap(({ problems }) => problems)),
    isGiven: (name) => variables.get(name) !== undefined,
    problem: (name, what) => {
      const variable = variables.get(name) ?? name;
      return { name: variable, what, example: exampleOf(name, table[name], variable) };
    },
  };
}

/**
 * The settings of a reading without problems.
 *
 * @throws SettingsError with every problem
 */
export function settle<T>(reading: Reading<T>): T {
  if (reading.value === undefined || reading.problems.length > 0) throw new SettingsError(reading.problems);
  return reading.value;
}

type Readings = Readonly<Record<string, Reading<unknown>>>;

/** The values of readings, by name. */
type Joined<All extends Readings> = {
  readonly [Name in keyof All]: Exclude<All[Name]["value"], undefined>;
};

/**
 * Joins readings: all of them, by name, or the problems of all of them together.
 *
 * @throws SettingsError with every problem of every reading
 */
export function joinReadings<All extends Readings>(readings: All): Joined<All> {
  const problems = withoutRepeats(Object.values(readings).flatMap((reading) => reading.problems));
  if (problems.length > 0) throw new SettingsError(problems);
  const values = Object.entries(readings).map(([name, reading]) => [name, settle(reading)]);
  return Object.fromEntries(values) as Joined<All>;
}

/** {@link IsDefinite} at run time. */
function isDefinite(row: Setting<unknown>): boolean {
  const isElsewhere = row.production !== undefined || row.required === true;
  return row.default !== undefined || (row.development !== undefined && isElsewhere);
}

/** An assignment that would do, with the prefix of the variable that it is to correct. */
export function exampleOf(name: string, row: Setting<unknown> | undefined, variable = name): string {
  const { exampleFile, example = row?.default ?? row?.production } = row ?? {};
  const prefix = variable.slice(0, Math.max(0, variable.indexOf(name)));
  return exampleFile
    ? `${prefix}${name}_FILE=/run/secrets/${exampleFile}`
    : `${prefix}${name}=${example ?? ""}`;
}

interface Resolved {
  /** The variable that sets it; undefined if none does. */
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
  const { value } = defaultOf(name, row, options);
  return { variable, value, problems: parsed.problems.map((what) => problem(what + but)) };
}

function defaultOf(name: string, row: Setting<unknown>, options: ReadOptions): Resolved {
  const template = row.default ?? row[options.environment];
  if (template === undefined) return { value: undefined, problems: [] };
  let missing = false;
  try {
    const text = template.replace(/<([^<>]+)>/g, (placeholder, word: string) => {
      const stands = options.placeholders?.[word];
      if (stands === undefined)
        throw new Error(`${name}: nothing is known of the placeholder ${placeholder}`);
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

function withoutRepeats(problems: readonly SettingProblem[]): readonly SettingProblem[] {
  return [...new Map(problems.map((problem) => [`${problem.name} ${problem.what}`, problem])).values()];
}
