/** The format of refresh tokens: clients keep them for weeks, so every token that was issued must stay readable. */
import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { decodeRefreshToken, encodeRefreshToken } from "../../../src/auth/tokens/refresh-token.ts";

const authorizationId = "019a9f6e-5c1d-7b3a-9f00-3f2a51d0c111";
const id = Buffer.from(authorizationId.replaceAll("-", ""), "hex");
const family = Buffer.alloc(32, 0xa5);
const rotating = Buffer.alloc(32, 0x3c);
const tag = createHash("sha256").update(family).update(id).update(rotating).digest().subarray(0, 16);
const token = `gpr_${Buffer.concat([id, family, rotating, tag]).toString("base64url")}`;

test("is the id, the two secrets, and half of a hash that binds them", () => {
  expect(encodeRefreshToken({ authorizationId, family, rotating })).toBe(token);
  expect(decodeRefreshToken(token)).toEqual({ authorizationId, family, rotating });
});

test("with any bit turned it is no token", () => {
  const bytes = Buffer.from(token.slice(4), "base64url");
  for (let bit = 0; bit < bytes.length * 8; bit += 1) {
    const turned = Buffer.from(bytes);
    turned.writeUInt8(turned.readUInt8(bit >> 3) ^ (1 << (bit & 7)), bit >> 3);
    expect(decodeRefreshToken(`gpr_${turned.toString("base64url")}`)).toBeUndefined();
  }
});

test("with the tag of another authorization's secrets it is no token", () => {
  const other = encodeRefreshToken({ authorizationId, family: Buffer.alloc(32, 1), rotating });
  const spliced = Buffer.from(token.slice(4), "base64url");
  Buffer.from(other.slice(4), "base64url").subarray(80).copy(spliced, 80);
  expect(decodeRefreshToken(`gpr_${spliced.toString("base64url")}`)).toBeUndefined();
});
