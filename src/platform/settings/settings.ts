/**
 * Settings: the one place that knows how they are read from an environment. A table of settings is data;
 * parsing, defaults, validation and the documentation come from its rows. Problems are gathered, never
 * thrown one by one, so that a deployment is put right in one go.
 */

import { type EnvironmentVariables, findText, quoted } from "./environment.ts";
import type { Environment, SettingKind } from "./kinds.ts";

/** A row of a settings table. */
export interface Setting<T> {
  /** The variable's name, without prefix. */
  readonly name: string;
  /** One sentence for the documentation. */
  readonly description: string;
  readonly kind: SettingKind<T>;
  /** An assignment that would do in production. */
  readonly example: string;
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

/** Rows by the names that the settings have in the code. */
export type SettingsTable = Readonly<Record<string, Setting<unknown>>>;

/** A value is there in every environment if each has a default or demands the setting. */
type IsDefinite<Row> = Row extends { default: string } | { development: string; production: string }
  ? true
  : Row extends { development: string; required: true }
    ? true
    : false;

type ValueOf<Row> = Row extends Setting<infer T> ? (IsDefinite<Row> extends true ? T : T | undefined) : never;

/** What a table's settings come to. */
export type SettingValues<Table extends SettingsTable> = {
  readonly [Key in keyof Table]: ValueOf<Table[Key]>;
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
  readonly sound: Partial<SettingValues<Table>>;
  /** Whether the environment sets a row of the table, well or badly. */
  readonly isGiven: (row: Setting<unknown>) => boolean;
  /** A problem of a row of the table, under the variable that sets it. */
  readonly problem: (row: Setting<unknown>, what: string) => SettingProblem;
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
  const rows = Object.entries(table).map(([key, row]) => ({ key, row, ...resolveRow(row, env, options) }));
  const sound = rows.filter(({ problems }) => problems.length === 0);
  const isUsable = rows.every(({ row, value }) => value !== undefined || !isDefinite(row));
  const values = (of: typeof rows) => Object.fromEntries(of.map(({ key, value }) => [key, value]));
  const variables = new Map(rows.map(({ row, variable }) => [row.name, variable]));
  return {
    // Each row's value is of its kind's type; no type can say so of the object that is built of them.
    value: isUsable ? (values(rows) as SettingValues<Table>) : undefined,
    sound: values(sound) as Partial<SettingValues<Table>>,
    problems: withoutRepeats(rows.flatMap(({ problems }) => problems)),
    isGiven: (row) => variables.get(row.name) !== undefined,
    problem: (row, what) => problemOf(row, what, variables.get(row.name)),
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

/** The example is given the prefix of the variable that it is to correct. */
function problemOf(row: Setting<unknown>, what: string, name = row.name): SettingProblem {
  const prefix = name.slice(0, Math.max(0, name.indexOf(row.name)));
  return { name, what, example: prefix + row.example };
}

interface ResolvedRow {
  /** The variable that sets it; undefined if none does. */
  readonly variable?: string;
  readonly value: unknown;
  readonly problems: readonly SettingProblem[];
}

function resolveRow(row: Setting<unknown>, env: EnvironmentVariables, options: ReadOptions): ResolvedRow {
  const found = findText(row.name, env, options.prefix);
  if (found === undefined) {
    const required = row.required === true || (row.required !== undefined && row.required === options.task);
    if (!required || options.environment !== "production") return defaultOf(row, options);
    return { value: undefined, problems: [problemOf(row, `is missing; it must be ${row.kind.expects}`)] };
  }
  const variable = found.name;
  const problems = (whats: readonly string[]) => whats.map((what) => problemOf(row, what, variable));
  if ("what" in found)
    return { variable, value: defaultOf(row, options).value, problems: problems([found.what]) };
  const parsed = row.kind.parse(found.text, options.environment);
  if ("value" in parsed) return { variable, value: parsed.value, problems: [] };
  const but = row.secret || !row.kind.quotable ? "" : `, but is ${quoted(found.text)}`;
  const whats = parsed.problems.map((what) => what + but);
  return { variable, value: defaultOf(row, options).value, problems: problems(whats) };
}

function defaultOf(row: Setting<unknown>, options: ReadOptions): ResolvedRow {
  const template = row.default ?? row[options.environment];
  if (template === undefined) return { value: undefined, problems: [] };
  let missing = false;
  try {
    const text = template.replace(/<([^<>]+)>/g, (placeholder, word: string) => {
      const stands = options.placeholders?.[word];
      if (stands === undefined)
        throw new Error(`${row.name}: nothing is known of the placeholder ${placeholder}`);
      const replacement = stands();
      missing ||= replacement === undefined;
      return replacement ?? "";
    });
    if (missing) return { value: undefined, problems: [] };
    const parsed = row.kind.parse(text, options.environment);
    if ("value" in parsed) return { value: parsed.value, problems: [] };
    return {
      value: undefined,
      problems: parsed.problems.map((what) => problemOf(row, `has no default: ${what}`)),
    };
  } catch (error) {
    if (error instanceof SettingsError) return { value: undefined, problems: error.problems };
    throw error;
  }
}

function withoutRepeats(problems: readonly SettingProblem[]): readonly SettingProblem[] {
  return [...new Map(problems.map((problem) => [`${problem.name} ${problem.what}`, problem])).values()];
}
