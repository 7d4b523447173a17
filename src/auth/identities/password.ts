/** Which passwords an identity may have, and how they are compared. */
import { readFile } from "node:fs/promises";

/** Makes passwords equal that differ only in their Unicode normalization (NIST SP 800-63B section 3.1.1.2). */
export function normalisePassword(password: string): string {
  return password.normalize("NFKC");
}

/** Characters of a password, at least: by the document as it is sent, and here as it is compared. */
const minCharacters = 8;

/** Read at first use, because few processes ever set a password. In lower case. */
let commonPasswords: Promise<ReadonlySet<string>> | undefined;

async function readCommonPasswords(): Promise<ReadonlySet<string>> {
  const text = await readFile(new URL("../../../gen/common-passwords.txt", import.meta.url), "utf8");
  const [_source, ...lines] = text.trimEnd().split("\n");
  return new Set(lines.flatMap((line) => line.split(" ")));
}

/**
 * The problem of a password that is short or common in any case (NIST SP 800-63B section 3.1.1.2); undefined: none.
 * @param password normalised
 */
export async function passwordProblem(password: string): Promise<string | undefined> {
  if ([...password].length < minCharacters)
    return `has fewer than ${minCharacters} characters once accents are joined to their letters`;
  const folded = password.toLowerCase();
  if (new Set(folded).size === 1) return "repeats one character; choose a password that is harder to guess";
  commonPasswords ??= readCommonPasswords();
  return (await commonPasswords).has(folded)
    ? "is one of the most common passwords; choose one that is harder to guess"
    : undefined;
}
