/**
 * The identity of a user. This folder owns the table of identities, the rules of phone, e-mail and metadata,
 * and passwords. It issues no tokens; deleting an identity or changing its password ends its authorizations in
 * the same transaction.
 */
import { type InputError, invalidInput, ServiceError } from "../../platform/base/errors.ts";
import { AuthErrorKinds } from "../errors.ts";
import type { identities } from "../schema.ts";
import { canonicalPhone, isPossiblePhone } from "./phone.ts";

/** An identity as it is stored. */
export type Identity = typeof identities.$inferSelect;

type AuthenticationType = "PHONE_OTP" | "PASSWORD";

/** The ways in which an identity can authenticate. Each has a phone for one-time codes; a password is optional. */
export function authenticationTypesOf({ passwordHash }: Identity): AuthenticationType[] {
  return passwordHash === null ? ["PHONE_OTP"] : ["PHONE_OTP", "PASSWORD"];
}

/** Bytes of metadata as JSON. */
const maxMetadataBytes = 16_384;

/** Fields of an identity as a caller sends them. An absent field stays as it is, null clears it. */
export interface IdentityFields {
  readonly phone?: string | undefined;
  readonly email?: string | null | undefined;
  readonly metadata?: Readonly<Record<string, unknown>> | null | undefined;
}

/** The same fields, checked, as they are stored. */
interface CheckedFields {
  phone?: string;
  email?: string | null;
  metadata?: Record<string, unknown> | null;
}

/**
 * Checks what JSON Schema cannot express. @param stored the identity's phone, which it may keep @throws invalid_request
 */
export function checkFields({ phone, email, metadata }: IdentityFields, stored?: string): CheckedFields {
  const errors: InputError[] = [];
  const checked: CheckedFields = {};
  if (phone !== undefined) {
    const canonical = canonicalPhone(phone);
    if (canonical && (canonical === stored || isPossiblePhone(canonical))) checked.phone = canonical;
    else
      errors.push({
        pointer: "/body/phone",
        message: "is not a possible phone number in international format",
      });
  }
  if (email !== undefined) checked.email = email;
  if (metadata !== undefined) {
    checked.metadata = metadata;
    if (metadata && Buffer.byteLength(JSON.stringify(metadata)) > maxMetadataBytes) {
      errors.push({ pointer: "/body/metadata", message: `is larger than ${maxMetadataBytes} bytes as JSON` });
    }
  }
  if (errors.length > 0) throw invalidInput(errors);
  return checked;
}

/** The error for a unique index that was violated; undefined for any other index. */
export function conflictOf(index: string | undefined): ServiceError | undefined {
  switch (index) {
    case "identities_pkey":
      return new ServiceError(AuthErrorKinds.identityIdTaken, "Another identity has this id.");
    case "identities_phone_unique":
      return new ServiceError(AuthErrorKinds.identityPhoneTaken, "Another identity has this phone number.");
    case "identities_email_unique":
      return new ServiceError(AuthErrorKinds.identityEmailTaken, "Another identity has this e-mail address.");
    default:
      return undefined;
  }
}

/** The error for the id of a client whose tokens have it as `sub`. */
export function idOfClient(): ServiceError {
  const message = "A client with the grant client_credentials has this id, so an identity cannot.";
  return new ServiceError(AuthErrorKinds.identityIdTaken, message);
}

/**
 * An e-mail address in the form in which addresses are compared: as PostgreSQL's `lower(… collate "C")`, which knows
 * the case of ASCII letters only, whatever language the database has. An address has no other letters.
 */
export function comparedEmail(email: string): string {
  return email.replaceAll(/[A-Z]/g, (letter) => letter.toLowerCase());
}
