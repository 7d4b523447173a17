/** Keys and certificates as people paste them: PEM is taken whatever became of its line breaks. */
import { createPublicKey, generateKeyPairSync } from "node:crypto";
import { describe, expect, test } from "vitest";
import { parse, type SettingKind } from "../../../src/platform/settings/kinds.ts";
import { certificatesPem, pemBlock, privateKeyPem } from "../../../src/platform/settings/pem.ts";
import { localhostCertificate } from "../../support/localhost-certificate.ts";

const { cert, key } = localhostCertificate;
const { privateKey, publicKey } = generateKeyPairSync("rsa", {
  modulusLength: 2048,
  publicKeyEncoding: { type: "spki", format: "pem" },
  privateKeyEncoding: { type: "pkcs1", format: "pem" },
});
const publicPem = pemBlock("a public key", ["PUBLIC KEY"], (pem) => {
  createPublicKey(pem);
  return pem;
});

describe.each<[string, SettingKind<string>, string]>([
  ["a certificate", certificatesPem, cert],
  ["a chain", certificatesPem, cert + cert],
  ["a key", privateKeyPem, key],
  ["an RSA key", privateKeyPem, privateKey],
  ["a public key", publicPem, publicKey],
])("%s", (_, kind, pem) => {
  test.each<[string, (text: string) => string]>([
    ["as it is", (text) => text],
    ["with CRLF", (text) => text.replaceAll("\n", "\r\n")],
    ["with \\n", (text) => text.replaceAll("\n", "\\n")],
    ["with \\r\\n", (text) => text.replaceAll("\n", "\\r\\n")],
    ["with \\\\n", (text) => text.replaceAll("\n", "\\\\n")],
    ["with a backslash before each line break", (text) => text.replaceAll("\n", "\\\n")],
    ["with spaces in place of line breaks", (text) => text.replaceAll("\n", " ")],
    ["without line breaks", (text) => text.replaceAll("\n", "")],
    ["indented", (text) => text.replaceAll("\n", "\n    ")],
    ["in quotes", (text) => `"${text}"`],
    ["in quotes, with \\n", (text) => `'${text.replaceAll("\n", "\\n")}'`],
  ])("%s", (_form, write) => {
    expect(parse(kind, write(pem), "production")).toEqual({ value: pem });
  });
});
