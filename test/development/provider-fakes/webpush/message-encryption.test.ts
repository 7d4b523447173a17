import { expect, it } from "vitest";
import { decryptPushMessage } from "../../../../src/development/provider-fakes/webpush/message-encryption.ts";

/** RFC 8291, section 5 and appendix A. */
const keys = {
  privateKey: Buffer.from("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94", "base64url"),
  publicKey: Buffer.from(
    "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
    "base64url",
  ),
  auth: Buffer.from("BTBZMqHH6r4Tts7J_aSIgg", "base64url"),
};
const body = Buffer.from(
  "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN",
  "base64url",
);

it("decrypts the example of RFC 8291", () => {
  expect(decryptPushMessage(body, keys)).toBe("When I grow up, I want to be a watermelon");
});

it("refuses the example if one bit of it is another", () => {
  for (const at of [0, 30, body.length - 1]) {
    const damaged = Buffer.from(body);
    damaged.writeUInt8(damaged.readUInt8(at) ^ 1, at);
    expect(() => decryptPushMessage(damaged, keys)).toThrow();
  }
});

it("refuses the example with another authentication secret", () => {
  expect(() => decryptPushMessage(body, { ...keys, auth: Buffer.alloc(16) })).toThrow(
    "It is encrypted for other keys, or damaged.",
  );
});
