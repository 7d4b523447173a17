/**
 * The output of the demo: requests and responses in a readable format, at most 100 columns wide. Colours only on
 * a terminal, and not if NO_COLOR is set.
 */
import { styleText } from "node:util";
import { say } from "../command.ts";

const width = 100;
const margin = "    ";
const isColoured = process.stdout.isTTY === true && !process.env["NO_COLOR"];

export type Style = "bold" | "dim" | "cyan" | "green" | "red" | "yellow";

/** The text in this style, if colours are on. */
export function styled(style: Style, text: string): string {
  return isColoured ? styleText(style, text, { validateStream: false }) : text;
}

/** The parts of a request or a response that are shown. */
export interface Message {
  /** The first line: method and path, or the status. */
  readonly line: string;
  /** The owner of the credentials that it carries. */
  readonly credentials?: string | undefined;
  readonly body?: Body | undefined;
}

/** A body, by its media type. */
export type Body =
  | { readonly json: unknown }
  | { readonly form: URLSearchParams }
  | { readonly text: string };

/** A part of the story. */
export function showChapter(title: string): void {
  say(`\n${styled("bold", `${title}\n${"─".repeat(title.length)}`)}`);
}

/** The heading of a step, and a note for the reader. */
export function showHeading(number: number, heading: string, note?: string): void {
  say(`\n${styled("bold", `${String(number).padStart(2)}. ${heading}`)}`);
  if (note !== undefined) for (const line of wrap(note, margin)) say(styled("yellow", line));
}

export function showRequest(message: Message): void {
  const who = message.credentials === undefined ? "" : `  as ${message.credentials}`;
  say(`${margin}${styled("cyan", `→ ${message.line}`)}${styled("dim", who)}`);
  showBody(message.body);
}

export function showResponse(message: Message): void {
  say(`${margin}${styled("cyan", `← ${message.line}`)}`);
  showBody(message.body);
}

/** A check that succeeded. */
export function showCheck(what: string): void {
  for (const line of wrap(`✓ ${what}`, margin, "  ")) say(styled("green", line));
}

/** The text, with the label before each of its lines. */
export function labelled(label: string, text: string): string {
  const hanging = " ".repeat(12);
  const lines = text.split("\n").flatMap((line) => wrap(line, margin + hanging, "  "));
  return `${margin}${label.padEnd(hanging.length)}${lines.join("\n").trimStart()}`;
}

function showBody(body: Body | undefined): void {
  for (const line of body === undefined ? [] : linesOf(body)) {
    for (const part of wrap(line, `${margin}  `, "    ")) say(part);
  }
}

function linesOf(body: Body): string[] {
  if ("json" in body) return jsonLines(body.json, width - margin.length - 2);
  if ("form" in body) return [...body.form].map(([name, value]) => `${name}=${shortened(value)}`);
  return body.text.slice(0, 1000).split("\n");
}

/**
 * JSON on as few lines as the width allows: a value that fits on one line stays on one.
 * @param taken columns of the first line that are used already
 */
function jsonLines(value: unknown, room: number, taken = 0): string[] {
  const inline = oneLine(value);
  if (typeof value !== "object" || value === null || taken + inline.length <= room) return [inline];
  const isArray = Array.isArray(value);
  const members = Object.entries(value);
  const inner = members.flatMap(([key, member], index) => {
    const name = isArray ? "" : `${JSON.stringify(key)}: `;
    const [first = "", ...rest] = jsonLines(member, room - 2, name.length + 1);
    const lines = [name + first, ...rest];
    const comma = index < members.length - 1 ? "," : "";
    return lines.map((line, at) => `  ${line}${at === lines.length - 1 ? comma : ""}`);
  });
  return [isArray ? "[" : "{", ...inner, isArray ? "]" : "}"];
}

function oneLine(value: unknown): string {
  if (typeof value !== "object" || value === null) return JSON.stringify(shortened(value));
  if (Array.isArray(value)) return `[${value.map(oneLine).join(", ")}]`;
  const members = Object.entries(value).map(([key, member]) => `${JSON.stringify(key)}: ${oneLine(member)}`);
  return members.length === 0 ? "{}" : `{ ${members.join(", ")} }`;
}

/** Tokens and keys without their middle; other values unchanged. */
function shortened(value: unknown): unknown {
  if (typeof value !== "string" || value.length <= 64 || /\s/.test(value)) return value;
  return `${value.slice(0, 24)}…${value.slice(-12)}`;
}

/** Breaks between words; further lines hang by `hanging` more. A line keeps the indentation it has. */
function wrap(text: string, indent: string, hanging = ""): string[] {
  const own = /^ */.exec(text)?.[0] ?? "";
  const lines: string[] = [];
  let line = indent + own;
  for (const word of text.trimStart().split(" ")) {
    const isEmpty = line.trim() === "";
    if (!isEmpty && line.length + 1 + word.length > width) {
      lines.push(line);
      line = indent + own + hanging + word;
    } else line += isEmpty ? word : ` ${word}`;
  }
  return [...lines, line];
}
