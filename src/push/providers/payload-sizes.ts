/** How large a notification's payloads are, before it is sent, and what is wrong with those that are too large. */
import type { Variables } from "../content/content.ts";
import { fillText } from "../content/variables.ts";
import type { ProviderName } from "../provider-settings.ts";
import type { PayloadSize, PushProvider } from "./provider.ts";
import { type NotificationToRender, renderedContent } from "./rendered-content.ts";

/** As long as the id of any notification. */
const anyId = "00000000-0000-7000-8000-000000000000";

/** The size of a provider's payload in one language. */
export interface LanguagePayload extends PayloadSize {
  readonly provider: ProviderName;
  /** Null in a silent notification. */
  readonly language: string | null;
}

interface Measured extends Omit<NotificationToRender, "id"> {
  /** PUSH_IMAGE_BASE_URL; undefined: images are not sent. */
  readonly imageBaseUrl: string | undefined;
  /** The longest value of each variable; undefined: the texts have none. */
  readonly longest?: Variables | undefined;
}

/** The sizes by provider and language. A provider without a limit has none, nor has one that is sent nothing. */
export function payloadsOf(measured: Measured, providers: Iterable<PushProvider>): LanguagePayload[] {
  const { content, imageBaseUrl, longest, ...others } = measured;
  const languages = content.silent ? [null] : Object.keys(content.texts);
  const contents = languages.map((language) => {
    const text = language === null ? undefined : content.texts[language];
    const filled = text && longest ? fillText(text, longest) : text;
    return { language, shown: renderedContent({ ...others, id: anyId, content }, imageBaseUrl, filled) };
  });
  return [...providers].flatMap((provider) =>
    contents.flatMap(({ language, shown }) => {
      const size = provider.payloadSize?.(shown);
      if (size === undefined) return [];
      const { bytes, limit, isShortened, fits } = size;
      return [{ provider: provider.name, language, bytes, limit, isShortened, fits }];
    }),
  );
}

/** A payload that is not to be sent, and why, in words that follow the name of its text, or of the data. */
interface TooLarge extends Pick<LanguagePayload, "language" | "fits"> {
  readonly message: string;
}

/**
 * What is too large: of each language the worst. A text that may not be shortened; or a payload whose other members
 * leave no room for one character of it, as nothing but the text and the image is ever shortened.
 */
export function tooLarge(payloads: readonly LanguagePayload[], tooLong: "shorten" | "refuse"): TooLarge[] {
  const isRefused = ({ fits, isShortened }: LanguagePayload) =>
    !fits || (tooLong === "refuse" && isShortened);
  const refused = payloads.filter(isRefused).sort((a, b) => b.bytes - b.limit - (a.bytes - a.limit));
  const worst = [...Map.groupBy(refused, ({ language }) => language).values()].flatMap((some) =>
    some.slice(0, 1),
  );
  return worst.map(({ provider, language, bytes, limit, fits }) => {
    const size = `makes a payload of ${bytes} bytes for ${provider}, which takes ${limit}`;
    const remedy = fits
      ? "; shorten it, or let it be shortened (tooLong)"
      : ", and leaves no room for a text; shorten data, link or title";
    return { language, fits, message: size + remedy };
  });
}
