/**
 * Problems of a JSON body that JSON.parse hides: repeated members, numbers that lose digits, unstorable texts, nesting.
 */
import type { InputError } from "../base/errors.ts";
import { losesDigits } from "./json-numbers.ts";
import { escapePointer, textProblem } from "./parameters.ts";

/** Levels of arrays and objects that a member of a JSON body may have. */
const maxDepth = 32;
/** A number with fewer characters and without an exponent has at most 15 digits, which every double keeps. */
const longNumber = 16;
/** A list of so many names is searched faster than a set is made of them. */
const listedNames = 8;

const [quote, backslash, comma, point, plus, minus] = [0x22, 0x5c, 0x2c, 0x2e, 0x2b, 0x2d];
const [openBracket, closeBracket, openBrace, closeBrace] = [0x5b, 0x5d, 0x7b, 0x7d];
const [digitZero, digitNine, letterD, letterE, letterU] = [0x30, 0x39, 0x64, 0x65, 0x75];

/** An array or object around the place of the scan. Each depth has one, which is used again and again. */
class Level {
  isObject = false;
  /** How many items of the array, or members of the object, have ended. */
  ended = 0;
  /** The name of the member whose value comes next; undefined where a name comes next. */
  name: string | undefined;
  /** How many of the names in the list are the object's. Those after them are of an earlier object. */
  #names = 0;
  readonly #list: string[] = [];
  /** All names of an object that has as many as the list takes. */
  #set: Set<string> | undefined;

  begin(isObject: boolean): void {
    this.isObject = isObject;
    this.ended = 0;
    this.name = undefined;
    this.#names = 0;
    this.#set = undefined;
  }

  /** Called at the comma behind an item or a member. */
  next(): void {
    this.ended += 1;
    this.name = undefined;
  }

  /** Adds a name to those of the object. @returns false if it has the name already */
  add(name: string): boolean {
    if (this.#set) return this.#set.size < this.#set.add(name).size;
    for (let index = 0; index < this.#names; index += 1) if (this.#list[index] === name) return false;
    this.#list[this.#names] = name;
    this.#names += 1;
    if (this.#names === listedNames) this.#set = new Set(this.#list);
    return true;
  }
}

/** The first problem of a JSON text; undefined if there is none. @param text valid JSON, decoded from UTF-8 */
export function jsonProblem(text: string): InputError | undefined {
  return new Scan(text).firstProblem();
}

class Scan {
  readonly #text: string;
  readonly #levels: Level[] = [];
  /** How many arrays and objects are around the place. */
  #depth = 0;
  #level: Level | undefined;
  /** The place of the last character of the token. */
  #end = 0;

  constructor(text: string) {
    this.#text = text;
  }

  firstProblem(): InputError | undefined {
    for (let at = 0; at < this.#text.length; at = this.#end + 1) {
      this.#end = at;
      const message = this.#token(at);
      if (message !== undefined) return { pointer: pointerTo(this.#levels.slice(0, this.#depth)), message };
    }
    return undefined;
  }

  /** @returns its problem, as the methods below do */
  #token(start: number): string | undefined {
    const code = this.#text.charCodeAt(start);
    switch (code) {
      case quote:
        return this.#string(start);
      case comma:
        this.#level?.next();
        return undefined;
      case openBracket:
      case openBrace:
        return this.#open(code === openBrace);
      case closeBracket:
      case closeBrace:
        this.#depth -= 1;
        this.#level = this.#levels[this.#depth - 1];
        return undefined;
      default:
        return code === minus || isDigit(code) ? this.#number(start) : undefined;
    }
  }

  #open(isObject: boolean): string | undefined {
    if (this.#depth > maxDepth) return `is nested deeper than ${maxDepth} levels`;
    const level = this.#levels[this.#depth] ?? new Level();
    level.begin(isObject);
    this.#levels[this.#depth] = level;
    this.#level = level;
    this.#depth += 1;
    return undefined;
  }

  #string(start: number): string | undefined {
    const end = endOfString(this.#text, start);
    this.#end = end;
    const level = this.#level;
    return level?.isObject && level.name === undefined
      ? nameProblem(level, this.#text, start, end)
      : stringProblem(this.#text, start, end);
  }

  #number(start: number): string | undefined {
    const end = endOfNumber(this.#text, start);
    this.#end = end - 1;
    return numberProblem(this.#text, start, end);
  }
}

function pointerTo(levels: readonly Level[]): string {
  const steps = levels.map(({ isObject, ended, name }) => (isObject ? name : String(ended)));
  return ["/body", ...steps.flatMap((step) => (step === undefined ? [] : [escapePointer(step)]))].join("/");
}

/** @param start of the quote before it @returns the place of the quote after it */
function endOfString(text: string, start: number): number {
  let at = start + 1;
  for (let code = text.charCodeAt(at); code !== quote; code = text.charCodeAt(at))
    at += code === backslash ? 2 : 1;
  return at;
}

/** The problem of the next member's name, which the object has from now on. */
function nameProblem(level: Level, text: string, start: number, end: number): string | undefined {
  const written = text.slice(start + 1, end);
  // Parsing costs several times as much as a slice, and few names have something to parse.
  const name = written.includes("\\") ? String(JSON.parse(`"${written}"`)) : written;
  const problem = textProblem(name);
  if (problem !== undefined) return `has a member name that ${problem}`;
  if (!level.add(name)) return `gives ${JSON.stringify(name)} more than once`;
  level.name = name;
  return undefined;
}

/** The problem of a string value, which is decoded only where an escape may stand for what is refused. */
function stringProblem(text: string, start: number, end: number): string | undefined {
  for (let at = start + 1; at < end; at += 1) {
    if (text.charCodeAt(at) !== backslash) continue;
    at += 1;
    if (text.charCodeAt(at) !== letterU) continue;
    const first = text.charCodeAt(at + 1);
    // U+0000, and the surrogates, from U+D800 on. In small letters by 0x20.
    if (first === digitZero || (first | 0x20) === letterD)
      return textProblem(String(JSON.parse(text.slice(start, end + 1))));
  }
  return undefined;
}

function isDigit(code: number): boolean {
  return code >= digitZero && code <= digitNine;
}

function isOfNumber(code: number): boolean {
  return isDigit(code) || code === point || code === plus || code === minus || (code | 0x20) === letterE;
}

function endOfNumber(text: string, start: number): number {
  let at = start + 1;
  while (isOfNumber(text.charCodeAt(at))) at += 1;
  return at;
}

function numberProblem(text: string, start: number, end: number): string | undefined {
  if (end - start < longNumber && !hasExponent(text, start, end)) return undefined;
  const number = text.slice(start, end);
  if (!Number.isFinite(Number(number))) return "is a number out of range";
  return losesDigits(number) ? "is a number with more digits than are kept; send it as a string" : undefined;
}

function hasExponent(text: string, start: number, end: number): boolean {
  for (let at = start; at < end; at += 1) if ((text.charCodeAt(at) | 0x20) === letterE) return true;
  return false;
}
