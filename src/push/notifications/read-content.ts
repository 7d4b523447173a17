/** Reads what a notification says, as a caller wrote it, and reports what no schema can express. */
import { escapePointer } from "../../platform/openapi/parameters.ts";
import type { Content, Text } from "../content/content.ts";
import { canonicalLanguage } from "../content/languages.ts";
import { imageNameProblem } from "../providers/content.ts";

/** A value whose members may be absent or null. */
export type Written<T> = { readonly [Name in keyof T]?: T[Name] | null | undefined };

/** Notes what is wrong at a place, in words that follow its pointer. */
export type Report = (pointer: string, message: string) => void;

/** Longest message, in bytes of UTF-8. A schema can only limit characters. */
const maxMessageBytes = 4000;

export const languageProblem = "is not a language tag (BCP 47) of a known language, such as de or pt-BR";

/** Reads a message, and the name of an image, at their pointers. `/push` has them too. */
export function checkText({ message }: { readonly message: string }, pointer: string, report: Report): void {
  if (Buffer.byteLength(message) > maxMessageBytes)
    report(`${pointer}/message`, `is longer than ${maxMessageBytes} bytes in UTF-8`);
}

/** @returns undefined for an empty name as well: clients whose generator knows no null send an empty text */
export function readImage(
  name: string | null | undefined,
  pointer: string,
  report: Report,
): string | undefined {
  if (name === null || name === undefined || name === "") return undefined;
  const problem = imageNameProblem(name);
  if (problem !== undefined) report(pointer, problem);
  return name;
}

/** What a device shows, which a silent notification has nothing of. */
const shown = ["image", "sound", "badge", "channel", "category", "thread", "interruptionLevel"] as const;

const at = "/body/content";

export function readContent(written: Written<Content>, report: Report): Content {
  const { link, data, silent, tooLong } = written;
  const texts = readTexts(written.texts ?? {}, report);
  checkSilence(written, report);
  if (typeof link === "string") checkLink(link, report);
  for (const name of Object.keys(data ?? {})) checkName(name, report);
  return {
    defaultLanguage: readDefault(given(written.defaultLanguage), Object.keys(texts), report),
    texts,
    image: readImage(written.image, `${at}/image`, report),
    link: given(link),
    data: given(data),
    sound: given(written.sound),
    badge: given(written.badge),
    channel: given(written.channel),
    category: given(written.category),
    thread: given(written.thread),
    interruptionLevel: given(written.interruptionLevel),
    silent: silent ?? false,
    tooLong: tooLong ?? "shorten",
  };
}

const given = <T>(value: T | null | undefined): T | undefined => value ?? undefined;

function checkSilence(written: Written<Content>, report: Report): void {
  const hasTexts = Object.keys(written.texts ?? {}).length > 0;
  if (written.silent !== true) {
    if (!hasTexts) report(`${at}/texts`, "is required, unless the notification is silent");
    return;
  }
  const present = shown.filter((name) => given(written[name]) !== undefined);
  for (const name of hasTexts ? ["texts", ...present] : present)
    report(`${at}/${name}`, "must be absent from a silent notification");
}

function readTexts(written: Readonly<Record<string, Text>>, report: Report): Record<string, Text> {
  const texts = new Map<string, { readonly tag: string; readonly text: Text }>();
  for (const [tag, { title, message }] of Object.entries(written)) {
    const pointer = `${at}/texts/${escapePointer(tag)}`;
    const language = canonicalLanguage(tag);
    const same = language === undefined ? undefined : texts.get(language);
    checkText({ message }, pointer, report);
    if (language === undefined) report(pointer, languageProblem);
    else if (same) report(pointer, `is the same language as ${same.tag}`);
    else texts.set(language, { tag, text: { title, message } });
  }
  return Object.fromEntries([...texts].map(([language, { text }]) => [language, text]));
}

function readDefault(
  tag: string | undefined,
  languages: readonly string[],
  report: Report,
): string | undefined {
  const pointer = `${at}/defaultLanguage`;
  if (tag === undefined) {
    if (languages.length > 1) report(pointer, "is required where there are texts in several languages");
    return languages[0];
  }
  const language = canonicalLanguage(tag);
  if (language === undefined) report(pointer, languageProblem);
  else if (!languages.includes(language)) report(pointer, "has no text among texts");
  return language;
}

/** Schemes of the web, of scripts and of files, none of which an app has of its own. */
const foreignSchemes =
  /^(?:https:(?!\/\/)|(?:http|ws|wss|ftp|file|filesystem|content|data|blob|about|javascript|vbscript|view-source|intent):)/i;

function checkLink(link: string, report: Report): void {
  const isUrl = /^[a-z][a-z0-9+.-]*:[^\s\p{Cc}]+$/iu.test(link) && URL.canParse(link);
  if (!isUrl || foreignSchemes.test(link))
    report(`${at}/link`, "is neither an https URL nor one with an app's own scheme");
}

/** FCM's reserved words, the member of APNs, and the names that this service uses in the data. */
const reserved = /^(?:from|message_type|collapse_key|aps|link|notificationId|messageId)$|^(?:google|gcm)/;

function checkName(name: string, report: Report): void {
  const pointer = `${at}/data/${escapePointer(name)}`;
  if (name === "" || name.length > 128) report(pointer, "must have a name of 1 to 128 characters");
  else if (reserved.test(name))
    report(pointer, "has a name that the platforms or this service keep for themselves");
}
