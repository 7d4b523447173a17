/**
 * Languages, as tags (BCP 47): their canonical form, and which of several fits a reader best, by the look-up of RFC 4647
 * section 3.4 over the likely script. So zh-TW takes zh-Hant and never zh, whose script is Hans.
 */
import { LRUCache } from "lru-cache";

const known = new Intl.DisplayNames(["en"], { type: "language", fallback: "none" });

/** To find a likely script takes several microseconds, and devices have the same few languages. */
const ranges = new LRUCache<string, string>({ max: 2_000 });

/** The most languages of a reader that are looked up. */
const maxWanted = 10;

/**
 * The tag in its canonical form, without extensions, such as de-AT for `de_at` and he for `iw-u-nu-latn`.
 * @param tag with hyphens, or underscores as in the locales of some platforms
 * @returns undefined for what is no tag, and for a language that nobody knows, such as `jp`
 */
export function canonicalLanguage(tag: string): string | undefined {
  try {
    const { language, baseName } = new Intl.Locale(tag.replaceAll("_", "-"));
    return known.of(language) === undefined ? undefined : baseName.replace(/-[a-z0-9]-.*$/i, "");
  } catch {
    return undefined;
  }
}

/**
 * The language with its script, the likely one if the tag has none: de-Latn-AT for de-AT. One language includes another
 * if and only if its range begins the other's, by whole subtags. The range of a range is itself.
 * @param tag in its canonical form
 */
export function languageRange(tag: string): string {
  const cached = ranges.get(tag);
  if (cached !== undefined) return cached;
  const locale = new Intl.Locale(tag);
  const script = locale.script ?? locale.maximize().script;
  const others = tag.split("-").slice(locale.script === undefined ? 1 : 2);
  const range = [locale.language, ...(script === undefined ? [] : [script]), ...others].join("-");
  ranges.set(tag, range);
  return range;
}

/**
 * What a filter's language includes: the languages whose range is at least `from` and before `before`, compared as
 * bytes. A hyphen follows `from` in all others than itself, and the dot in `before` is what comes after a hyphen.
 */
export function languageSpan(tag: string): { readonly from: string; readonly before: string } {
  const from = languageRange(tag);
  return { from, before: `${from}.` };
}

/**
 * @param tags in their canonical form
 * @returns finds the tag for a reader, given his language or its range: the closest one that includes it
 */
export function createLookup(tags: readonly string[]): (wanted: string) => string | undefined {
  const byRange = new Map(tags.map((tag) => [languageRange(tag), tag]));
  return (wanted) => {
    let range = languageRange(wanted);
    for (;;) {
      const tag = byRange.get(range);
      if (tag !== undefined || !range.includes("-")) return tag;
      range = range.slice(0, range.lastIndexOf("-"));
    }
  };
}

/**
 * The languages of an `Accept-Language` header (RFC 9110 section 12.5.4) in canonical form, the most wanted first.
 * What is no language is left out, `*` too: whoever takes any gets the default.
 */
export function acceptedLanguages(header: string): readonly string[] {
  const wanted = header.split(",", maxWanted).flatMap((item) => {
    const [tag = "", ...parameters] = item.split(";").map((part) => part.trim());
    const weight = parameters.map((parameter) => /^q=(.*)$/i.exec(parameter)?.[1]).find(Boolean) ?? "1";
    const language = canonicalLanguage(tag);
    return language === undefined || !(Number(weight) > 0) ? [] : [{ language, weight: Number(weight) }];
  });
  return wanted.sort((a, b) => b.weight - a.weight).map(({ language }) => language);
}
