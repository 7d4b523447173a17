/** The responses of a push service: every row of the table by name. */
import type { FakeResponse } from "../exchange.ts";

const statuses = {
  /** 400. */
  BadRequest: 400,
  /** 400: a VAPID key that the subscription was not made for, as Apple says it. */
  VapidPkHashMismatch: 400,
  /** 400: the same, in Google's older words. */
  UnauthorizedRegistration: 400,
  /** 401: no VAPID token, or an invalid one. */
  Unauthorized: 401,
  /** 401: a VAPID key that the subscription was not made for, as Mozilla says it. */
  VapidKeyMismatch: 401,
  /** 403: the same, as Google says it. */
  Forbidden: 403,
  /** 404: there is no such subscription. */
  NotFound: 404,
  MethodNotAllowed: 405,
  /** 410: the subscription has ended. */
  Gone: 410,
  /** 413: more than 4096 bytes. */
  PayloadTooLarge: 413,
  TooManyRequests: 429,
  InternalServerError: 500,
  /** 502, with an HTML body. */
  BadGateway: 502,
  ServiceUnavailable: 503,
} as const;

export type WebPushRow = keyof typeof statuses;

/** The rows by name. */
export const webPushRows = Object.keys(statuses);

/** The rows for a VAPID key that the subscription was not made for, by whose push service it is. */
export const otherKeyRows = {
  google: "Forbidden",
  mozilla: "VapidKeyMismatch",
  apple: "VapidPkHashMismatch",
} as const;

/** Bodies in the vendors' own words: text, or JSON. */
const bodies: { readonly [Row in WebPushRow]?: string | object } = {
  VapidPkHashMismatch: { reason: "VapidPkHashMismatch" },
  UnauthorizedRegistration: "UnauthorizedRegistration",
  VapidKeyMismatch: { code: 401, errno: 109, error: "Unauthorized", message: "VAPID public key mismatch" },
  Forbidden:
    "the VAPID credentials in the authorization header do not correspond to the credentials used to create the subscriptions.\n",
};

/** @param message for people; its wording differs between push services */
export function webPushResponse(row: WebPushRow, message: string = row): FakeResponse {
  const code = statuses[row];
  if (code === 502) {
    const body =
      "<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>\n";
    return { status: code, headers: { "content-type": "text/html" }, body };
  }
  const body = bodies[row] ?? { code, error: row, message };
  return typeof body === "string"
    ? { status: code, headers: { "content-type": "text/plain" }, body }
    : { status: code, headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
}
