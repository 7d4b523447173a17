/** The access token of a program that acts for itself, or for an organization (RFC 6749 section 4.4). */
import type { TokenSource } from "./authorized-fetch.ts";
import { type Platform, platformOf, repeated } from "./platform.ts";
import { type AuthAddress, createPost } from "./token-endpoint.ts";
import { pairOf } from "./token-pair.ts";

export interface ServiceTokenOptions extends AuthAddress {
  readonly scope?: string;
  readonly organization?: string;
  readonly platform?: Partial<Platform>;
}

/** It is kept in this process, and another is got in time, or when an API refuses it. One request for all who wait. */
export function serviceToken(options: ServiceTokenOptions): TokenSource {
  const { scope, organization } = options;
  const platform = platformOf(options.platform);
  const post = createPost(options, platform);
  let last: { readonly accessToken: string; readonly until: number } | undefined;
  let coming: Promise<string> | undefined;

  async function issued(): Promise<string> {
    const form = { grant_type: "client_credentials", scope, organization };
    const { session } = pairOf(await post("generateTokens", form), undefined);
    const { accessToken, expiresIn } = session;
    last = { accessToken, until: platform.monotonic() + Math.max(expiresIn - 30, expiresIn / 2) * 1000 };
    return accessToken;
  }

  return {
    async accessToken(refused) {
      if (last && last.accessToken !== refused && platform.monotonic() < last.until) return last.accessToken;
      coming ??= repeated(platform, 30, issued).finally(() => {
        coming = undefined;
      });
      return coming;
    },
  };
}
