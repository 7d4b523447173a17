/** What would be sent to whom: devices by what they are, the sizes of payloads, and when the last message would go out. */
import type { Content } from "../content/content.ts";
import { createTextLookup } from "../content/texts.ts";
import type { Platform } from "../devices/platform.ts";
import type { ProviderName } from "../provider-settings.ts";
import type { LanguagePayload } from "../providers/payload-sizes.ts";
import type { NotificationRequest, Warning } from "./read-notification.ts";

/** Devices of a provider, with one language and of one platform; null: it is not known. */
export interface CountedShare {
  readonly provider: ProviderName;
  readonly language: string | null;
  readonly platform: Platform | null;
  readonly devices: number;
}

/** The devices of an audience. */
export interface CountedAudience {
  /** Undefined where it is not only for named users. */
  readonly users: number | undefined;
  readonly shares: readonly CountedShare[];
  /** Devices that would be in, but for `except` and `exceptUsers`. */
  readonly excluded: number;
  /** Named users who have no device. */
  readonly withoutDevice: number;
  /** Whether it was counted in samples. */
  readonly isEstimate: boolean;
}

type Exclusion = "EXCEPT" | "NO_DEVICE" | "SILENT_WEB";

export interface NotificationPreview {
  readonly users: number | null;
  readonly devices: number;
  readonly isEstimate: boolean;
  readonly breakdown: readonly CountedShare[];
  readonly excluded: readonly { readonly reason: Exclusion; readonly devices: number }[];
  readonly payloads: readonly Omit<LanguagePayload, "fits">[];
  /** An ISO 8601 date-time; null where no limit says. */
  readonly finishesAt: string | null;
  readonly warnings: readonly Warning[];
}

interface Previewed {
  readonly request: NotificationRequest;
  readonly counted: CountedAudience;
  readonly payloads: readonly LanguagePayload[];
  readonly warnings: readonly Warning[];
  /** Messages a second that a provider takes at the moment; undefined: there is no limit. */
  readonly rateOf: (provider: ProviderName) => number | undefined;
  /** Milliseconds since the epoch. */
  readonly now: number;
}

export function previewOf({
  request,
  counted,
  payloads,
  warnings,
  rateOf,
  now,
}: Previewed): NotificationPreview {
  const { content, delivery } = request;
  const isOut = ({ provider, platform }: CountedShare) =>
    content.silent && (provider === "webpush" || platform === "web");
  const shares = counted.shares.filter((share) => !isOut(share));
  const seconds = [...Map.groupBy(shares, ({ provider }) => provider)].map(
    ([provider, some]) => sumOf(some) / (rateOf(provider) ?? Number.POSITIVE_INFINITY),
  );
  const ownSeconds = sumOf(shares) / (delivery.maxPerSecond ?? Number.POSITIVE_INFINITY);
  const longest = Math.max(ownSeconds, ...seconds);
  const excluded = [
    { reason: "EXCEPT", devices: counted.excluded },
    { reason: "NO_DEVICE", devices: counted.withoutDevice },
    { reason: "SILENT_WEB", devices: sumOf(counted.shares) - sumOf(shares) },
  ] as const;
  return {
    users: counted.users ?? null,
    devices: sumOf(shares),
    isEstimate: counted.isEstimate,
    breakdown: byText(shares, content),
    excluded: excluded.filter(({ devices }) => devices > 0),
    payloads: payloads.map(({ fits: _fits, ...size }) => size),
    finishesAt: longest > 0 ? new Date(now + Math.ceil(longest * 1000)).toISOString() : null,
    warnings,
  };
}

function sumOf(shares: readonly CountedShare[]): number {
  return shares.reduce((sum, { devices }) => sum + devices, 0);
}

/** The shares by the language of the text that they are sent, the largest first. */
function byText(shares: readonly CountedShare[], content: Content): CountedShare[] {
  const lookUp = createTextLookup(content);
  const sent = shares.map((share) => ({
    ...share,
    language: lookUp(share.language === null ? [] : [share.language]) ?? null,
  }));
  const groups = Map.groupBy(sent, ({ provider, language, platform }) =>
    JSON.stringify([provider, language, platform]),
  );
  return [...groups.values()]
    .flatMap(([first, ...more]) => (first ? [{ ...first, devices: sumOf([first, ...more]) }] : []))
    .sort((a, b) => b.devices - a.devices);
}
