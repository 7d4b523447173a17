/** The texts of entries, as their reader gets them: in a language of his, if there is one, and with his values. */
import type { Database } from "../../platform/database/database.ts";
import { rows } from "../../platform/database/sql/statements.ts";
import type { Text } from "../content/content.ts";
import { createTextLookup } from "../content/texts.ts";
import { fillText } from "../content/variables.ts";
import { textIn, textsStatement } from "./history-statements.ts";

/** What an entry has of its notification. */
interface EntryText extends Text {
  readonly id: string;
  readonly languages: readonly string[] | null;
  readonly defaultLanguage: string | null;
  readonly variables: Readonly<Record<string, string>> | null;
}

/** The language of the entry's text, if it is another than that of the entry's own text. */
function otherLanguage(
  { languages, defaultLanguage }: EntryText,
  wanted: readonly string[],
): string | undefined {
  if (languages === null || wanted.length === 0) return undefined;
  const texts = Object.fromEntries(languages.map((tag) => [tag, { title: "", message: "" }]));
  const found = createTextLookup({ texts, defaultLanguage: defaultLanguage ?? undefined })(wanted);
  return found === defaultLanguage ? undefined : found;
}

/**
 * @param wanted the reader's languages in canonical form, the most wanted first
 * @returns finds the text of one of the entries
 */
export async function textsFor(
  db: Database,
  entries: readonly EntryText[],
  wanted: readonly string[],
): Promise<(entry: EntryText) => Text> {
  const others = entries.flatMap((entry) => {
    const language = otherLanguage(entry, wanted);
    return language === undefined ? [] : [{ id: entry.id, language }];
  });
  const statement = textsStatement(
    others.map(({ id }) => id),
    others.map(({ language }) => language),
  );
  const found = others.length > 0 ? await rows(db, textIn, statement) : [];
  const byId = new Map(found.map((text) => [text.id, text]));
  return ({ id, title, message, variables }) => {
    const text = byId.get(id) ?? { title, message };
    return variables === null ? text : fillText(text, variables);
  };
}
