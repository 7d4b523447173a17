/**
 * An e-mail address in the form in which addresses are compared: as PostgreSQL's `lower(… collate "C")`, which knows
 * the case of ASCII letters only, whatever language the database has. An address has no other letters.
 */
export function comparedEmail(email: string): string {
  return email.replaceAll(/[A-Z]/g, (letter) => letter.toLowerCase());
}
