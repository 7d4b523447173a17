/** Spans of the statements of a trace: they say what is done to which table, neither the text nor its values. */
import { sqlState } from "../../base/database-errors.ts";
import { codeOf } from "../../base/error-code.ts";
import {
  currentSpan,
  inSpan,
  isTracing,
  otherError,
  type Span,
  type SpanStart,
  startSpan,
  untraced,
  within,
} from "../../base/tracing.ts";

/** Requests that a shared statement names, at most. */
const maxLinks = 32;

/** The operations of statements, by their texts, which are few. */
const summaries = new Map<string, Summary>();
const maxSummaries = 1_000;

interface Summary {
  /** `UPDATE auth.authorizations` */
  readonly name: string;
  readonly attributes: Readonly<Record<string, string>>;
}

/** Runs a statement, in a span if it is a part of a trace. */
export function inStatementSpan<T>(text: string, run: () => Promise<T>): Promise<T> {
  if (!currentSpan()) return run();
  return inDatabaseSpan({ ...summaryOf(text), kind: "client" }, run, failureType);
}

/** Runs a transaction, from the wait for a connection to the end of its commit. */
export function inTransactionSpan<T>(run: () => Promise<T>): Promise<T> {
  if (!currentSpan()) return run();
  const attributes = { "db.system.name": "postgresql" };
  // What rolls it back may be the work's own decision, and then nothing has failed.
  return inDatabaseSpan({ name: "transaction", kind: "client", attributes }, run, errorType);
}

function inDatabaseSpan<T>(
  start: SpanStart,
  run: () => Promise<T>,
  typeOf: (error: unknown) => string | undefined,
): Promise<T> {
  const work = (span?: Span) =>
    run().catch((error: unknown) => {
      const state = sqlState(error);
      if (state !== undefined) span?.set({ "db.response.status_code": state });
      throw error;
    });
  return inSpan(start, work, typeOf);
}

/**
 * Does what requests share, in the first one's trace. Each of the others has a span that links to it, and fails as it
 * does.
 * @param keys how many things are asked for
 */
export function inSharedSpan<T>(requests: readonly Span[], keys: number, work: () => Promise<T>): Promise<T> {
  if (!isTracing()) return work();
  const [first, ...others] = requests;
  // The request that began the batch may be another one than those whose traces are recorded.
  if (!first) return untraced(work);
  if (others.length === 0) return within(first, work);
  const attributes = { "db.system.name": "postgresql", "db.operation.batch.size": keys };
  const start = { name: "batch", kind: "internal", attributes } as const;
  const links = others.slice(0, maxLinks).map(({ context }) => context);
  async function shared(span?: Span): Promise<T> {
    const waits = others.map(({ context }) =>
      startSpan({ ...start, parent: context, links: span && [span.context] }),
    );
    const end = (error?: string) => {
      for (const wait of waits) wait?.end(error);
    };
    try {
      const result = await work();
      end();
      return result;
    } catch (error) {
      end(failureType(error));
      throw error;
    }
  }
  return within(first, () => inSpan({ ...start, links }, shared, failureType));
}

/** PostgreSQL's code, or the driver's. */
function errorType(error: unknown): string | undefined {
  return sqlState(error) ?? codeOf(error);
}

/** The word for a failure, whatever was thrown. */
function failureType(error: unknown): string {
  return errorType(error) ?? otherError;
}

function summaryOf(text: string): Summary {
  const known = summaries.get(text);
  if (known) return known;
  const summary = summarize(text);
  if (summaries.size < maxSummaries) summaries.set(text, summary);
  return summary;
}

/** A table's name with its schema. Names without one are those of a statement's own parts. */
const table = String.raw`("?\w+"?\."?\w+"?)`;
const change = new RegExp(
  String.raw`\b(insert)\s+into\s+${table}|\b(update)\s+${table}|\b(delete)\s+from\s+${table}`,
  "gi",
);
const look = new RegExp(String.raw`\b(?:from|join)\s+${table}`, "i");
/** Changes that a name lists, at most. */
const maxListed = 4;

/** The table that a statement changes, or else the first that it reads from. */
function summarize(text: string): Summary {
  const changes = text.matchAll(change).map((match) => match.slice(1).filter((part) => part !== undefined));
  const listed = [...new Set(changes.map(([verb = "", target = ""]) => named(verb, target)))].slice(
    0,
    maxListed,
  );
  const name = listed.length > 0 ? listed.join(" ") : named(firstWord(text), look.exec(text)?.[1]);
  const [operation = name] = name.split(" ");
  return {
    name,
    attributes: {
      "db.system.name": "postgresql",
      "db.operation.name": operation,
      "db.query.summary": name,
    },
  };
}

function named(verb: string, target: string | undefined): string {
  return target === undefined ? verb.toUpperCase() : `${verb.toUpperCase()} ${target.replaceAll('"', "")}`;
}

/** `with` begins what is a `select` here: a change would have been found. */
function firstWord(text: string): string {
  const word = /^\s*(\w+)/.exec(text)?.[1] ?? "statement";
  return word.toLowerCase() === "with" ? "select" : word;
}
