/** The limits on sending codes, against pumped bills. Each code counts for all of them, whoever has the phone. */
import type { CodesSettings } from "../codes-settings.ts";
import type { CodesLimit } from "../events.ts";
import type { Counter } from "../limits/attempt-counters.ts";
import type { DatabaseCounters } from "../limits/database-counters.ts";
import type { CodeObserver } from "./code-observer.ts";
import { type CodeRefusal, type CodeRequest, limited } from "./code-request.ts";
import { networkOf, prefixOf } from "./numbers.ts";

const hourSeconds = 3_600;
const daySeconds = 86_400;

type Limit = CodesLimit | "phone_interval";

interface LimitCounter extends Counter {
  readonly limit: Limit;
}

export interface SendLimits {
  /** Why the code may not be sent; undefined: it may, for the time being. Counts nothing. */
  refusalOf(request: CodeRequest): Promise<CodeRefusal | undefined>;
  /** Counts the code for every limit, or for none if one of them is reached meanwhile. */
  count(request: CodeRequest): Promise<CodeRefusal | undefined>;
}

interface Dependencies {
  readonly settings: Pick<CodesSettings, "limits" | "resendSeconds">;
  readonly counters: Pick<DatabaseCounters, "full" | "countAll">;
  readonly observer: Pick<CodeObserver, "limited" | "refused">;
}

export function createSendLimits({ settings, counters, observer }: Dependencies): SendLimits {
  const { limits, resendSeconds } = settings;

  /** What a code counts for, the narrowest first. */
  function countersOf({ phone, clientId, address = "unknown" }: CodeRequest): readonly LimitCounter[] {
    const network = networkOf(address);
    const counter = (limit: Limit, failures: number, windowSeconds: number, subject: string) => {
      return { limit, rule: { name: `code_${limit}`, failures, windowSeconds }, subject };
    };
    return [
      counter("phone_interval", 1, resendSeconds, phone),
      counter("phone_network", limits.phone_network, daySeconds, `${phone} ${network}`),
      counter("phone", limits.phone, daySeconds, phone),
      counter("address", limits.address, hourSeconds, address),
      ...(address.includes(":") ? [counter("network", limits.network, hourSeconds, network)] : []),
      counter("prefix", limits.prefix, hourSeconds, prefixOf(phone)),
      counter("client", limits.client, hourSeconds, clientId),
    ];
  }

  /** @param wanted the counters of the request @returns undefined if none of them is full */
  async function look(wanted: readonly LimitCounter[], { phone, clientId }: CodeRequest) {
    const full = await counters.full(wanted);
    const [longest] = full.toSorted((one, other) => other.waitSeconds - one.waitSeconds);
    if (!longest) return undefined;
    const { waitSeconds } = longest;
    const { limit, subject } = longest.counter;
    if (limit === "phone_interval") observer.refused(limit);
    else await observer.limited({ limit, subject, waitSeconds, phone, clientId });
    return limited(waitSeconds);
  }

  return {
    refusalOf: (request) => look(countersOf(request), request),

    async count(request) {
      const wanted = countersOf(request);
      if (await counters.countAll(wanted)) return undefined;
      return (await look(wanted, request)) ?? limited(1);
    },
  };
}
