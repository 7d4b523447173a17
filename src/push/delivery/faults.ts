/**
 * Of whom a failure says something: of the provider, or of this process, whose credentials, clock or network others do
 * not share. A fault of the process pauses it alone, unless every other living process has one with the same service.
 */
import type { Outcome } from "../providers/provider.ts";

export const faults = ["credentials", "clock", "network"] as const;
/** What of this process may be why it cannot use a service. */
export type Fault = (typeof faults)[number];

/**
 * What a failure consists of. Which responses of a provider are which is decided where they become outcomes.
 *
 * - `refused`: a refusal of our key, access token, project or topic.
 * - `refusedTime`: such a refusal, while our clock differs from the provider's, or for a time that we have signed.
 * - `foreign`: tokens are taken for those of another key or project than ours.
 * - `noResponse`: no connection, or a request without a response.
 * - `failure`: a response, such as a 5xx or 429, also of the endpoint for access tokens.
 */
type Sign = "refused" | "refusedTime" | "foreign" | "noResponse" | "failure";

const subjects: Readonly<Record<Sign, Fault | "provider">> = {
  refused: "credentials",
  refusedTime: "clock",
  foreign: "credentials",
  noResponse: "network",
  failure: "provider",
};

/** The fault that this process may have, by the outcome for which a service is to be paused. */
export function faultOf(outcome: Outcome): Fault | undefined {
  const subject = subjects[signOf(outcome)];
  return subject === "provider" ? undefined : subject;
}

function signOf(outcome: Outcome): Sign {
  const { kind } = outcome;
  if (kind === "refused") return outcome.isOfTime ? "refusedTime" : "refused";
  if (kind === "retry" || kind === "unavailable") return outcome.hasNoResponse ? "noResponse" : "failure";
  return kind === "foreign" ? "foreign" : "failure";
}
