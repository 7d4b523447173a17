/** Which numbers get codes, and how numbers and addresses are grouped. */
import { expect, test } from "vitest";
import { mayReceiveCodes, networkOf, prefixOf } from "../../../src/auth/codes/numbers.ts";

test.each([
  ["a mobile phone of a region that is listed", "+4915112345678", ["DE"], true],
  ["of a region that is not", "+4915112345678", ["AT"], false],
  ["the United States, where kinds cannot be told apart", "+12025550123", ["US"], true],
  ["Jamaica, which shares the calling code", "+18762101234", ["US"], false],
  ["the United Kingdom", "+447400123456", ["GB"], true],
  ["Jersey, which shares the calling code", "+447797712345", ["GB"], false],
  ["a fixed line", "+493012345678", ["DE"], false],
  ["a premium number", "+49900123456", ["DE"], false],
  ["a satellite phone, which has no region", "+881612345678", ["US"], false],
  ["any mobile phone where all regions are", "+4915112345678", undefined, true],
  ["no fixed line even so", "+493012345678", undefined, false],
] as const)("%s", (_name, phone, regions, expected) => {
  expect(mayReceiveCodes(phone, regions)).toBe(expected);
});

test("a prefix is the digits without the last four", () => {
  expect(prefixOf("+12025550123")).toBe("1202555");
});

test.each([
  ["198.51.100.7", "198.51.100"],
  ["2001:db8::1", "2001:db8:0:0"],
  ["2001:DB8:1:2:3:4:5:6", "2001:db8:1:2"],
  ["::1", "0:0:0:0"],
  ["2001:db8:1::", "2001:db8:1:0"],
])("the network of %s", (address, network) => {
  expect(networkOf(address)).toBe(network);
});
