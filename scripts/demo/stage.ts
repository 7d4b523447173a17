/** The state that all chapters of the demo share: the calls, the credentials, the user, and the counter of steps. */
import { randomBytes, randomInt } from "node:crypto";
import type { components } from "../../gen/openapi/auth.ts";
import { type App, createApp } from "./app.ts";
import { basic, type Calls } from "./calls.ts";
import { same } from "./mismatch.ts";
import { showCheck, showHeading } from "./screen.ts";

export type TokenPair = components["schemas"]["TokenPair"];

/** Compares a value with the expected one, and shows the check. @throws Mismatch */
export type Check = (what: string, got: unknown, expected: unknown) => void;

export interface Stage {
  readonly calls: Calls;
  /** The user's app. */
  readonly app: App;
  readonly user: { readonly id: string; readonly phone: string; readonly email: string };
  /** Somebody who works in the back office. */
  readonly operator: { readonly id: string; readonly phone: string };
  /** Authorization headers of development mode's clients. */
  readonly credentials: {
    readonly internal: string;
    readonly backend: string;
    readonly backoffice: string;
    readonly api: string;
  };
  /** Runs one step, with its heading. A step that throws ends the demo. */
  step<T>(heading: string, work: (check: Check) => Promise<T>, note?: string): Promise<T>;
  /** The step that runs or has run: its number and its heading. */
  current(): { readonly number: number; readonly heading: string };
}

export function createStage(calls: Calls): Stage {
  const name = randomBytes(6).toString("hex");
  let current = { number: 0, heading: "" };
  return {
    calls,
    app: createApp(calls),
    user: { id: `demo-${name}`, phone: fictionalPhone(), email: `ada.${name}@example.com` },
    operator: { id: `operator-${name}`, phone: fictionalPhone() },
    credentials: {
      internal: basic("internal", "internal-dev-secret"),
      backend: basic("backend", "backend-dev-secret"),
      backoffice: basic("backoffice", "backoffice-dev-secret"),
      api: basic("api", "api-dev-secret"),
    },
    async step(heading, work, note) {
      current = { number: current.number + 1, heading };
      showHeading(current.number, heading, note);
      return work((what, got, expected) => {
        same(got, expected, what);
        showCheck(what);
      });
    },
    current: () => current,
  };
}

/** Areas of North America. */
const areas = [202, 212, 303, 312, 404, 415, 503, 602, 617, 702, 713, 808];

/** A fictional number: the exchange 555 is not in service there. Codes are sent to numbers that may exist alone. */
function fictionalPhone(): string {
  return `+1${areas[randomInt(areas.length)]}555${String(randomInt(10_000)).padStart(4, "0")}`;
}
