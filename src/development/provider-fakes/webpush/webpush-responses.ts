/** The responses of a push service: every row of the table by name. */
import type { FakeResponse } from "../exchange.ts";

const statuses = {
  /** 400. */
  BadRequest: 400,
  /** 401: no VAPID token, or an invalid one. */
  Unauthorized: 401,
  /** 403: a VAPID key that the subscription was not made for. */
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

/** @param message for people; its wording differs between push services */
export function webPushResponse(row: WebPushRow, message: string = row): FakeResponse {
  const code = statuses[row];
  if (code === 502) {
    const body =
      "<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>\n";
    return { status: code, headers: { "content-type": "text/html" }, body };
  }
  return {
    status: code,
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ code, error: row, message }),
  };
}
