/** The texts of a notification: which of them a reader gets. */
import type { Content } from "./content.ts";
import { createLookup } from "./languages.ts";

/**
 * @returns finds the language of the text for a reader who wants these languages, the most wanted first; that of
 *   `defaultLanguage`, or the only one, if none fits. Undefined: there are no texts
 */
export function createTextLookup({
  texts,
  defaultLanguage,
}: Pick<Content, "texts" | "defaultLanguage">): (wanted: readonly string[]) => string | undefined {
  const languages = Object.keys(texts);
  const otherwise = defaultLanguage ?? languages[0];
  if (languages.length < 2) return () => otherwise;
  const lookUp = createLookup(languages);
  return (wanted) => {
    for (const language of wanted) {
      const found = lookUp(language);
      if (found !== undefined) return found;
    }
    return otherwise;
  };
}
