/**
 * The preparation of a notification's content within a chunk: once for each language, and for each user if there are
 * variables.
 */
import { plainContent } from "../content/content.ts";
import { createTextLookup } from "../content/texts.ts";
import { fillText } from "../content/variables.ts";
import type { PushProvider, Send } from "../providers/provider.ts";
import { renderedContent } from "../providers/rendered-content.ts";
import type { SendableChunk, TakenDevice } from "../queue/take-chunks.ts";

/** What decides which text a device is sent. */
type Reader = Pick<TakenDevice, "userId" | "reader">;

/** @returns finds what sends the content that is a device's */
export function prepareContent(
  provider: Pick<PushProvider, "prepare">,
  { notification }: Pick<SendableChunk, "notification">,
  imageBaseUrl: string | undefined,
): (device: Reader) => Send {
  const { image, content = null } = notification;
  const said = content ?? plainContent(notification, image ?? undefined);
  const languageFor = createTextLookup(said);
  const prepared = new Map<string, Send>();
  return ({ userId, reader }) => {
    const { language = null, variables = null } = reader ?? {};
    const found = languageFor(language === null ? [] : [language]) ?? "";
    const key = variables === null ? found : `${found} ${userId}`;
    let send = prepared.get(key);
    if (send === undefined) {
      const text = said.texts[found];
      const filled = text && variables !== null ? fillText(text, variables) : text;
      send = provider.prepare(renderedContent({ ...notification, content: said }, imageBaseUrl, filled));
      prepared.set(key, send);
    }
    return send;
  };
}
