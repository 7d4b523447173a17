/**
 * Spans of statements: of those that are a part of a trace, and not of what is done in the background. They say what is
 * done to which table, and neither the statement's text nor its values.
 */
import { sqlState } from "../base/database-errors.ts";
import { codeOf } from "../base/error-code.ts";
import { currentSpan, inSpan, isSampled, isTracing, type Span, untraced, within } from "../base/tracing.ts";

/** Requests that a shared statement names, at most. */
export const maxLinks = 32;

/** What statements do, by their texts, which are few. */
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
  return inSpan({ ...summaryOf(text), kind: "client" }, run, errorType);
}

/** Runs a transaction, from the wait for a connection to the end of its commit. */
export function inTransactionSpan<T>(run: () => Promise<T>): Promise<T> {
  if (!currentSpan()) return run();
  const attributes = { "db.system.name": "postgresql" };
  return inSpan({ name: "transaction", kind: "client", attributes }, run, errorType);
}

/**
 * Does what requests share. What is done for one alone is a part of its trace; what is done for several belongs to none
 * of them, and links to all.
 * @param requests {@link maxLinks} of their spans, at most
 * @param keys how many things are asked for
 */
export function inSharedSpan<T>(requests: readonly Span[], keys: number, work: () => Promise<T>): Promise<T> {
  if (!isTracing()) return work();
  const recorded = requests.filter(({ context }) => isSampled(context));
  const [first, second] = recorded;
  // Whoever began the batch may be another than the one for whom it is recorded.
  if (!second) return first ? within(first, work) : untraced(work);
  const attributes = { "db.system.name": "postgresql", "db.operation.batch.size": keys };
  const links = recorded.map(({ context }) => context);
  return untraced(() => inSpan({ name: "batch", kind: "internal", attributes, links }, work, errorType));
}

/** PostgreSQL's code, or the driver's. */
function errorType(error: unknown): string {
  return sqlState(error) ?? codeOf(error) ?? "unknown";
}

function summaryOf(text: string): Summary {
  const known = summaries.get(text);
  if (known) return known;
  const summary = summarize(text);
  if (summaries.size < maxSummaries) summaries.set(text, summary);
  return summary;
}

/** With its schema: other names are those of a statement's own parts. */
const table = String.raw`("?\w+"?\."?\w+"?)`;
const change = new RegExp(
  String.raw`\b(insert)\s+into\s+${table}|\b(update)\s+${table}|\b(delete)\s+from\s+${table}`,
  "gi",
);
const look = new RegExp(String.raw`\b(?:from|join)\s+${table}`, "i");
/** Changes that a name lists, at most. */
const maxListed = 4;

/** What a statement changes, or else the first table that it reads from. */
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
