/**
 * Looks for secrets where none may be: as they are, and in hexadecimal, base64 and base64url, also in the
 * middle of a longer encoded text. Of tokens it looks for each part too that would be as good as the whole.
 */

/** A secret of a transcript (scripts/demo/transcript.ts). */
export interface Secret {
  readonly kind: string;
  readonly text: string;
}

/** The secrets of a transcript. */
export function secretsOf(transcript: string): Secret[] {
  return transcript
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => {
      const tab = line.indexOf("\t");
      return { kind: line.slice(0, tab), text: line.slice(tab + 1) };
    });
}

/** One spelling of a secret. */
interface Needle {
  readonly bytes: Buffer;
  readonly description: string;
  /** So short that it can be a part of something else by chance: it counts only where it stands alone. */
  readonly isShort: boolean;
}

/** @returns what was found, in words without the secrets; nothing if all is well */
export function findSecrets(secrets: readonly Secret[], haystack: Buffer): string[] {
  const byStart = new Map<number, Needle[]>();
  for (const needle of secrets.flatMap(needlesOf)) {
    const start = needle.bytes.readUInt16BE(0);
    byStart.set(start, [...(byStart.get(start) ?? []), needle]);
  }
  const found = new Set<string>();
  for (let at = 0, start = 0; at < haystack.length; at += 1) {
    start = ((start << 8) | (haystack[at] ?? 0)) & 0xffff;
    const needles = at > 0 ? byStart.get(start) : undefined;
    for (const needle of needles ?? []) if (isAt(needle, haystack, at - 1)) found.add(needle.description);
  }
  return [...found];
}

function isAt({ bytes, isShort }: Needle, haystack: Buffer, at: number): boolean {
  if (haystack.compare(bytes, 0, bytes.length, at, Math.min(at + bytes.length, haystack.length)) !== 0)
    return false;
  if (!isShort) return true;
  const before = haystack.toString("latin1", Math.max(0, at - 2), at);
  const after = haystack.toString("latin1", at + bytes.length, at + bytes.length + 1);
  // The microseconds of a timestamp have six digits, as a one-time code does.
  return !/[\w+/-]$|\d\.$/.test(before) && !/\d/.test(after);
}

function needlesOf({ kind, text }: Secret): Needle[] {
  const whole = Buffer.from(text);
  return [[kind, whole] as const, ...partsOf(kind, text)].flatMap(([name, bytes]) => spellings(name, bytes));
}

/** What of a token is as secret as the token. */
function partsOf(kind: string, text: string): (readonly [string, Buffer])[] {
  if (kind === "refresh_token") {
    const bytes = Buffer.from(text.replace(/^gpr_/, ""), "base64url");
    return [
      [`${kind}, decoded`, bytes],
      [`${kind}, family part`, bytes.subarray(16, 48)],
      [`${kind}, rotating part`, bytes.subarray(48, 80)],
    ];
  }
  const signature = text.split(".")[2];
  if (signature === undefined || !["access_token", "otp_proof"].includes(kind)) return [];
  return [
    [`${kind}, signature`, Buffer.from(signature)],
    [`${kind}, signature decoded`, Buffer.from(signature, "base64url")],
  ];
}

function spellings(name: string, bytes: Buffer): Needle[] {
  const hex = bytes.toString("hex");
  const texts: (readonly [string, string])[] = [
    ["hexadecimal", hex],
    ["hexadecimal", hex.toUpperCase()],
    ...base64Middles(bytes).flatMap((text) => [
      ["base64", text] as const,
      ["base64url", text.replaceAll("+", "-").replaceAll("/", "_")] as const,
    ]),
  ];
  const needle = (form: string, found: Buffer) => ({
    bytes: found,
    description: `${name} in ${form}`,
    isShort: found.length < 8,
  });
  return [needle("plain", bytes), ...texts.map(([form, text]) => needle(form, Buffer.from(text)))];
}

/** The characters that the bytes decide, whichever of three places they have in what is encoded. */
function base64Middles(bytes: Buffer): string[] {
  return [0, 1, 2].map((before) => {
    const text = Buffer.concat([Buffer.alloc(before), bytes])
      .toString("base64")
      .replace(/=+$/, "");
    const first = Math.ceil((before * 8) / 6);
    const last = Math.floor(((before + bytes.length) * 8) / 6);
    return text.slice(first, last);
  });
}
