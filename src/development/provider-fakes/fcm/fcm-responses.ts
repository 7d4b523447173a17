/** The responses of FCM HTTP v1, in Google's wording: each row of its table of errors by name. */
import type { FakeResponse } from "../exchange.ts";

/** The rows that can be played; 401 has two, one for our own credentials and one for those that FCM uses. */
export const fcmRows = [
  /** 400 about the payload. */
  "INVALID_ARGUMENT",
  /** 400 about `message.token`. */
  "INVALID_TOKEN",
  /** The same, without a field: in the message alone. */
  "INVALID_TOKEN_IN_WORDS",
  /** 401: the access token. */
  "UNAUTHENTICATED",
  /** 401: APNs or Web Push credentials in the project. */
  "THIRD_PARTY_AUTH_ERROR",
  /** 403: the credentials may not send in this project. */
  "PERMISSION_DENIED",
  /** 403: the token belongs to another sender. */
  "SENDER_ID_MISMATCH",
  /** 404. */
  "UNREGISTERED",
  /** 429: the project's messages a minute. */
  "QUOTA_EXCEEDED",
  /** 429: one device's messages a minute. */
  "DEVICE_QUOTA_EXCEEDED",
  /** 500. */
  "INTERNAL",
  /** 502, with an HTML body. */
  "BAD_GATEWAY",
  /** 503. */
  "UNAVAILABLE",
  /** 400, the OAuth token endpoint. */
  "invalid_grant",
  /** 500, the OAuth token endpoint. */
  "internal_failure",
] as const;

export type FcmRow = (typeof fcmRows)[number];

const json = { "content-type": "application/json; charset=UTF-8" };
const types = "type.googleapis.com";

/** An invalid field of a request. */
export interface FieldViolation {
  /** Such as `message.android.ttl`. */
  readonly field: string;
  readonly description: string;
}

/** 400 because of a field. */
export function invalidArgument(violation: FieldViolation): FakeResponse {
  const { field, description } = violation;
  return error(400, "INVALID_ARGUMENT", description, [
    fcmError("INVALID_ARGUMENT"),
    { "@type": `${types}/google.rpc.BadRequest`, fieldViolations: [{ field, description }] },
  ]);
}

/** 400 of Google's front end, which parses the JSON before FCM gets it; so there is no FcmError. */
export function invalidJson({ field, description }: FieldViolation): FakeResponse {
  const fieldViolations = [field === "" ? { description } : { field, description }];
  return error(400, "INVALID_ARGUMENT", description, [
    { "@type": `${types}/google.rpc.BadRequest`, fieldViolations },
  ]);
}

/** The response to an unknown path or method. */
export function notFoundPage(path: string): FakeResponse {
  return page(
    404,
    "Not Found",
    `The requested URL <code>${path.replaceAll(/[<>&]/g, "")}</code> was not found`,
  );
}

/** An error response of the token endpoint. */
export function oauthError(status: number, code: string, description?: string): FakeResponse {
  const body = description === undefined ? { error: code } : { error: code, error_description: description };
  return { status, headers: json, body: JSON.stringify(body) };
}

/** 200 with a body that is already JSON. */
export function ok(body: string): FakeResponse {
  return { status: 200, headers: json, body };
}

/** 403, in the wording of Google's identity and access management. */
export function permissionDenied(project: string): FakeResponse {
  const resource = `//cloudresourcemanager.googleapis.com/projects/${project}`;
  const permission = "cloudmessaging.messages.create";
  return error(
    403,
    "PERMISSION_DENIED",
    `Permission '${permission}' denied on resource '${resource}' (or it may not exist).`,
    [
      {
        "@type": `${types}/google.rpc.ErrorInfo`,
        reason: "IAM_PERMISSION_DENIED",
        domain: "cloudresourcemanager.googleapis.com",
        metadata: { permission, resource: `projects/${project}` },
      },
    ],
  );
}

/** The responses by row. */
export const fcmResponses: Readonly<Record<FcmRow, () => FakeResponse>> = {
  INVALID_ARGUMENT: () =>
    invalidArgument({ field: "message.notification", description: "Request contains an invalid argument." }),
  INVALID_TOKEN: () =>
    invalidArgument({
      field: "message.token",
      description: "The registration token is not a valid FCM registration token",
    }),
  INVALID_TOKEN_IN_WORDS: () =>
    error(400, "INVALID_ARGUMENT", "The registration token is not a valid FCM registration token", [
      fcmError("INVALID_ARGUMENT"),
    ]),
  UNAUTHENTICATED: () =>
    error(
      401,
      "UNAUTHENTICATED",
      "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid authentication credential. See https://developers.google.com/identity/sign-in/web/devconsole-project.",
      [
        {
          "@type": `${types}/google.rpc.ErrorInfo`,
          reason: "ACCESS_TOKEN_EXPIRED",
          domain: "googleapis.com",
          metadata: {
            service: "fcm.googleapis.com",
            method: "google.firebase.fcm.v1.FcmService.SendMessage",
          },
        },
      ],
    ),
  THIRD_PARTY_AUTH_ERROR: () =>
    error(401, "UNAUTHENTICATED", "Auth error from APNS or Web Push Service", [
      fcmError("THIRD_PARTY_AUTH_ERROR"),
    ]),
  PERMISSION_DENIED: () => permissionDenied("another-project"),
  SENDER_ID_MISMATCH: () =>
    error(403, "PERMISSION_DENIED", "SenderId mismatch", [fcmError("SENDER_ID_MISMATCH")]),
  UNREGISTERED: () => error(404, "NOT_FOUND", "Requested entity was not found.", [fcmError("UNREGISTERED")]),
  QUOTA_EXCEEDED: () =>
    error(
      429,
      "RESOURCE_EXHAUSTED",
      "Quota exceeded for quota metric 'Send requests' and limit 'Send requests per minute' of service 'fcm.googleapis.com'.",
      [fcmError("QUOTA_EXCEEDED")],
    ),
  DEVICE_QUOTA_EXCEEDED: () =>
    error(429, "RESOURCE_EXHAUSTED", "Device message rate exceeded", [
      {
        "@type": `${types}/google.rpc.QuotaFailure`,
        violations: [{ subject: "device", description: "Device message rate exceeded" }],
      },
      fcmError("QUOTA_EXCEEDED"),
    ]),
  INTERNAL: () => error(500, "INTERNAL", "Internal error encountered.", [fcmError("INTERNAL")]),
  BAD_GATEWAY: () =>
    page(502, "Server Error", "The server encountered a temporary error. Please try again in 30 seconds."),
  UNAVAILABLE: () =>
    error(503, "UNAVAILABLE", "The service is currently unavailable.", [fcmError("UNAVAILABLE")]),
  invalid_grant: () => oauthError(400, "invalid_grant", "Invalid JWT Signature."),
  internal_failure: () => oauthError(500, "internal_failure"),
};

function fcmError(errorCode: string): object {
  return { "@type": `${types}/google.firebase.fcm.v1.FcmError`, errorCode };
}

function error(code: number, status: string, message: string, details: readonly object[]): FakeResponse {
  const body = JSON.stringify({ error: { code, message, status, details } }, null, 2);
  return { status: code, headers: json, body: `${body}\n` };
}

function page(status: number, title: string, text: string): FakeResponse {
  return {
    status,
    headers: { "content-type": "text/html; charset=UTF-8" },
    body: `<!DOCTYPE html>\n<html lang=en>\n  <title>Error ${status} (${title})!!1</title>\n  <p><b>${status}.</b> <ins>That's an error.</ins>\n  <p>${text} <ins>That's all we know.</ins>\n`,
  };
}
