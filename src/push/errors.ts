/** The kinds of error that only the push service returns, in the shape of the platform's table. */
import { type ErrorKind, ErrorKinds, ServiceError } from "../platform/base/errors.ts";

const notFound = { status: 404, grpc: "NotFound", oauth: "invalid_request" } as const;

export const PushErrorKinds = {
  notificationNotFound: { ...notFound, code: "notification_not_found", title: "Notification not found" },
  deadLetterNotFound: { ...notFound, code: "dead_letter_not_found", title: "Dead letter not found" },
  idempotencyKeyReused: {
    code: "idempotency_key_reused",
    status: 409,
    grpc: "AlreadyExists",
    oauth: "invalid_request",
    title: "Idempotency key reused",
  },
  notificationFinished: {
    code: "notification_finished",
    status: 409,
    grpc: "FailedPrecondition",
    oauth: "invalid_request",
    title: "Notification finished",
  },
} as const satisfies Record<string, ErrorKind>;

/** Missing or wrong Bearer credentials over RPC, for which no OpenAPI document declares the error. */
export function unauthenticated(): ServiceError {
  return new ServiceError(
    ErrorKinds.unauthenticated,
    "Credentials are missing or wrong. Send an access token in the authorization metadata, scheme Bearer.",
  );
}

/** A valid token of an application that may not use the operation. */
export function wrongApplication(): ServiceError {
  return new ServiceError(
    ErrorKinds.forbidden,
    "This operation is not for the application that the access token was issued to.",
  );
}

/** A valid token that a client got for itself or an organization. */
export function noUser(): ServiceError {
  return new ServiceError(
    ErrorKinds.forbidden,
    "This operation is for users, and the access token is that of a client which acts for none.",
  );
}

export function notificationNotFound(): ServiceError {
  return new ServiceError(PushErrorKinds.notificationNotFound, "There is no notification with this id.");
}

export function deadLetterNotFound(): ServiceError {
  return new ServiceError(PushErrorKinds.deadLetterNotFound, "There is no dead letter with this id.");
}

export function providerNotFound(): ServiceError {
  return new ServiceError(ErrorKinds.notFound, "This deployment does not use this push provider.");
}

export function idempotencyKeyReused(): ServiceError {
  return new ServiceError(
    PushErrorKinds.idempotencyKeyReused,
    "This Idempotency-Key was used for another notification in the last 24 hours.",
  );
}

/**
 * Pause, resume or cancel of a notification that has ended, or a replay for one.
 * @param how it has ended, as a clause
 */
export function notificationFinished(how: string): ServiceError {
  return new ServiceError(PushErrorKinds.notificationFinished, `This notification has ended: ${how}.`);
}
