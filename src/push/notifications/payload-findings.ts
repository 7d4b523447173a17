/** The sizes of a request's payloads, and what they mean for it: errors, and warnings of texts that are shortened. */
import { escapePointer } from "../../platform/openapi/parameters.ts";
import { canonicalLanguage } from "../content/languages.ts";
import { longestVariables } from "../content/variables.ts";
import { type LanguagePayload, payloadsOf, tooLarge } from "../providers/payload-sizes.ts";
import type { PushProvider } from "../providers/provider.ts";
import type { NotificationRequest, Warning, WrittenNotification } from "./read-notification.ts";

interface Dependencies {
  readonly providers: ReadonlyMap<string, PushProvider>;
  readonly imageBaseUrl: string | undefined;
  readonly ttlSeconds: number;
}

/** @returns the sizes by provider and language, with the longest values of variables */
export function createPayloadsOf({ providers, imageBaseUrl, ...defaults }: Dependencies) {
  return ({ audience, content, delivery }: NotificationRequest, now: number): readonly LanguagePayload[] => {
    const { priority, collapseId, ttlSeconds = defaults.ttlSeconds } = delivery;
    const { personal } = audience;
    const longest =
      personal.length > 0 ? longestVariables(personal.map(({ variables }) => variables)) : undefined;
    const expiresAt = now + ttlSeconds * 1000;
    return payloadsOf(
      { content, priority, collapseId, expiresAt, imageBaseUrl, longest },
      providers.values(),
    );
  };
}

/** @param written the notification, for the places of its texts */
export function payloadFindings(payloads: readonly LanguagePayload[], { content }: WrittenNotification) {
  const tags = Object.keys(content.texts ?? {});
  const placed = ({
    language,
    message,
  }: {
    readonly language: string | null;
    readonly message: string;
  }): Warning => {
    const tag = tags.find((one) => canonicalLanguage(one) === language);
    return {
      pointer: tag === undefined ? "/body/content/data" : `/body/content/texts/${escapePointer(tag)}`,
      message,
    };
  };
  const hasData = Object.keys(content.data ?? {}).length > 0;
  const errors = tooLarge(payloads, content.tooLong ?? "shorten").map(({ language, fits, message }) =>
    placed({ language: fits || !hasData ? language : null, message }),
  );
  const shortened = payloads.filter(({ isShortened, fits }) => isShortened && fits);
  return {
    errors: [...new Map(errors.map((error) => [error.pointer, error])).values()],
    warnings: shortened.map(({ provider, language, limit }) =>
      placed({
        language,
        message: `is shortened for ${provider}, whose payloads have at most ${limit} bytes`,
      }),
    ),
  };
}
