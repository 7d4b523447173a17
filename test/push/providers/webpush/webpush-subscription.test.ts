import { createECDH, randomBytes } from "node:crypto";
import { describe, expect, test } from "vitest";
import { parseSubscription } from "../../../../src/push/providers/webpush/webpush-subscription.ts";

const allowed = [
  ...["fcm.googleapis.com", "updates.push.services.mozilla.com", "web.push.apple.com"],
  ...["*.notify.windows.com", "http://127.0.0.1:9303"],
];
const p256dh = createECDH("prime256v1").generateKeys("base64url");
const auth = randomBytes(16).toString("base64url");

const problemOf = (subscription: unknown): string | undefined => {
  const parsed = parseSubscription(JSON.stringify(subscription), allowed);
  return "problem" in parsed ? parsed.problem : undefined;
};
const at = (endpoint: unknown) => ({ endpoint, keys: { p256dh, auth } });

describe("an endpoint", () => {
  test.each([
    "https://fcm.googleapis.com/fcm/send/abc:APA91b-_x",
    "https://fcm.googleapis.com:443/wp/abc",
    "https://updates.push.services.mozilla.com/wpush/v2/gAAAA",
    "https://web.push.apple.com/QJx",
    "https://wns2-par02p.notify.windows.com/w/?token=BQYAAAC%2f%3d",
    "http://127.0.0.1:9303/push/x",
  ])("of a push service is taken: %s", (endpoint) => {
    expect(problemOf(at(endpoint))).toBeUndefined();
  });

  test.each([
    ["http", "http://fcm.googleapis.com/x"],
    ["another scheme", "ftp://fcm.googleapis.com/x"],
    ["a file", "file:///etc/passwd"],
    ["loopback", "https://127.0.0.1/"],
    ["another port of an allowed origin", "http://127.0.0.1:9304/push/x"],
    ["an allowed origin with https", "https://127.0.0.1:9303/push/x"],
    ["an allowed origin in decimal, elsewhere", "http://2130706433:9304/"],
    ["localhost", "https://localhost/"],
    ["loopback in decimal", "https://2130706433/"],
    ["loopback in hexadecimal", "https://0x7f000001/"],
    ["loopback in octal", "https://0177.0.0.1/"],
    ["short loopback", "https://127.1/"],
    ["any address", "https://0.0.0.0/"],
    ["private", "https://10.0.0.1/"],
    ["private, too", "https://192.168.1.1/"],
    ["link-local: metadata", "https://169.254.169.254/latest/meta-data/"],
    ["IPv6 loopback", "https://[::1]/"],
    ["IPv6 that maps IPv4", "https://[::ffff:127.0.0.1]/"],
    ["IPv6 unique local", "https://[fd00::1]/"],
    ["user and password of none", "https://@fcm.googleapis.com/x"],
    ["user and password", "https://user:secret@fcm.googleapis.com/x"],
    ["a user that looks like the host", "https://fcm.googleapis.com@evil.example/x"],
    ["a host that looks like a user", "https://evil.example@fcm.googleapis.com/x"],
    ["another port", "https://fcm.googleapis.com:8443/x"],
    ["port 80", "https://fcm.googleapis.com:80/x"],
    ["a final dot", "https://fcm.googleapis.com./x"],
    ["a final dot below a wildcard", "https://a.notify.windows.com./x"],
    ["below an exact host", "https://x.fcm.googleapis.com/x"],
    ["the wildcard's own host", "https://notify.windows.com/x"],
    ["only the end of the wildcard's host", "https://evilnotify.windows.com/x"],
    ["an empty label", "https://.notify.windows.com/x"],
    ["a longer host", "https://fcm.googleapis.com.evil.example/x"],
    ["another script", "https://fcm.googleapıs.com/x"],
    ["full-width letters", "https://\uff46cm.googleapis.com/x"],
    ["a soft hyphen", "https://fcm.google\u00adapis.com/x"],
    ["an ideographic full stop", "https://fcm。googleapis。com/x"],
    ["punycode", "https://xn--fcm-googleapis-abc.com/x"],
    ["percent escapes in the host", "https://fcm%2egoogleapis.com/x"],
    ["a backslash", "https://evil.example\\@fcm.googleapis.com/x"],
    ["a tab", "https://fcm.google\tapis.com/x"],
    ["a line break", "https://fcm.googleapis.com/x\r\nHost: evil"],
    ["a space before it", " https://fcm.googleapis.com/x"],
    ["a path that is another host as a reference", "https://fcm.googleapis.com//evil.example/x"],
    ["a path of two slashes", "https://fcm.googleapis.com//"],
    ["such a path at an allowed origin", "http://127.0.0.1:9303//evil.example/x"],
    ["such a path once it is resolved", "https://fcm.googleapis.com/..//evil.example/x"],
    ["such a path once it is resolved and unescaped", "https://fcm.googleapis.com/a/%2e%2E//evil.example/x"],
    ["a fragment", "https://fcm.googleapis.com/x#y"],
    ["no host", "https:///x"],
    ["no slashes", "https:fcm.googleapis.com/x"],
    ["nothing", ""],
    ["no text", 7],
    ["a list", ["https://fcm.googleapis.com/x"]],
    ["none", undefined],
  ])("that leads elsewhere is refused: %s", (_, endpoint) => {
    expect(problemOf(at(endpoint))).toBe("must have an endpoint of a push service that is allowed");
  });
});

describe("keys", () => {
  const endpoint = "https://fcm.googleapis.com/x";
  const point = Buffer.from(p256dh, "base64url");
  const compressed = Buffer.concat([Buffer.from([2]), point.subarray(1, 33)]);
  const offCurve = Buffer.from(point);
  offCurve[64] = (offCurve[64] ?? 0) ^ 1;

  test.each([
    ["none", undefined],
    ["short", point.subarray(0, 64).toString("base64url")],
    ["compressed", compressed.toString("base64url")],
    ["not on the curve", offCurve.toString("base64url")],
    ["zeros", Buffer.alloc(65).toString("base64url")],
    ["not base64url", `${p256dh.slice(0, -1)}!`],
    ["no text", 7],
  ])("p256dh that is none is refused: %s", (_, key) => {
    expect(problemOf({ endpoint, keys: { p256dh: key, auth } })).toMatch(/^must have keys.p256dh/);
  });

  test.each(["", "AAAA", randomBytes(17).toString("base64url"), 7, null])(
    "auth that is none is refused: %j",
    (secret) => {
      expect(problemOf({ endpoint, keys: { p256dh, auth: secret } })).toMatch(/^must have keys.auth/);
    },
  );

  test("with padding are taken, and further members do not matter", () => {
    expect(
      problemOf({ endpoint, expirationTime: null, keys: { p256dh: `${p256dh}=`, auth: `${auth}==` } }),
    ).toBe(undefined);
  });
});

test.each(["", "x", "null", "[]", '"text"', "{", `{"endpoint":"${"x".repeat(5000)}"}`])(
  "what is no subscription is refused: %.20s",
  (token) => {
    expect(parseSubscription(token, allowed)).toHaveProperty("problem");
  },
);
