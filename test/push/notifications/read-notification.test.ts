/** A notification as callers write it: what is sent to whom, and all that is wrong with it at once. */
import { describe, expect, it } from "vitest";
import {
  readNotification,
  type WrittenNotification,
} from "../../../src/push/notifications/read-notification.ts";

const now = Date.parse("2026-11-21T09:30:00Z");
const text = { title: "Hello", message: "How are you?" };
const read = (written: Partial<WrittenNotification>) =>
  readNotification({ audience: { users: ["u-1"] }, content: { texts: { en: text } }, ...written }, now);
const errors = (written: Partial<WrittenNotification>) =>
  Object.fromEntries(read(written).errors.map(({ pointer, message }) => [pointer, message]));
const places = (written: Partial<WrittenNotification>) => Object.keys(errors(written));

describe("what is read", () => {
  it("has defaults for all that is absent or null", () => {
    const nulls = { sound: null, badge: null, silent: null, tooLong: null, data: null, image: "" };
    const {
      request,
      errors: found,
      warnings,
    } = read({
      audience: { users: ["u-1"], anyOf: null, everybody: null },
      content: { texts: { en: text }, ...nulls },
      delivery: { priority: null, history: null },
    });
    expect([found, warnings]).toEqual([[], []]);
    expect(request).toEqual({
      audience: { users: ["u-1"], personal: [], anyOf: [], except: [], exceptUsers: [], everybody: false },
      content: { defaultLanguage: "en", texts: { en: text }, silent: false, tooLong: "shorten" },
      delivery: { priority: "high", history: true },
    });
  });

  it("is canonical, and names each value once", () => {
    const { request } = read({
      audience: {
        users: ["b", "a", "b"],
        anyOf: [
          {
            languages: ["DE_at", "iw", "de-AT"],
            timeZones: ["asia/calcutta", "Asia/Kolkata"],
            utcOffsets: [1, 60, -330],
            platforms: ["ios", "ios"],
          },
        ],
      },
      content: { defaultLanguage: "zh_hant_tw", texts: { "ZH-hant-TW": text, iw: text } },
    });
    expect(request.audience.users).toEqual(["b", "a"]);
    expect(request.audience.anyOf).toEqual([
      {
        languages: ["de-AT", "he"],
        timeZones: ["Asia/Calcutta"],
        utcOffsets: [60, -330],
        platforms: ["ios"],
      },
    ]);
    expect(request.content.defaultLanguage).toBe("zh-Hant-TW");
    expect(Object.keys(request.content.texts)).toEqual(["zh-Hant-TW", "he"]);
  });

  it("warns of an entry in the history that a silent notification does not have", () => {
    const silent = { content: { silent: true, data: { a: "b" } }, delivery: { history: true } };
    expect(read(silent).errors).toEqual([]);
    expect(read(silent).warnings).toMatchObject([{ pointer: "/body/delivery/history" }]);
    expect(read(silent).request.delivery.history).toBe(false);
  });
});

describe("whom it is for", () => {
  const personal = [{ user: "u-1", variables: { name: "Ada" } }];

  it.each<[string, WrittenNotification["audience"], readonly string[]]>([
    ["nobody", {}, ["/body/audience"]],
    ["exceptions alone", { exceptUsers: ["a"], except: [{ platforms: ["ios"] }] }, ["/body/audience"]],
    ["not everybody", { everybody: false }, ["/body/audience"]],
    ["a filter without members", { anyOf: [{ languages: ["de"] }, {}] }, ["/body/audience/anyOf/1"]],
    ["a filter of nulls", { users: ["a"], except: [{ platforms: null }] }, ["/body/audience/except/0"]],
    [
      "languages that nobody knows",
      { anyOf: [{ languages: ["de", "jp", "x"] }] },
      ["/body/audience/anyOf/0/languages/1", "/body/audience/anyOf/0/languages/2"],
    ],
    ["no time zone", { anyOf: [{ timeZones: ["Mars/Base"] }] }, ["/body/audience/anyOf/0/timeZones/0"]],
    ["no offset", { anyOf: [{ utcOffsets: [17] }] }, ["/body/audience/anyOf/0/utcOffsets/0"]],
    [
      "personal users beside others",
      { personal, users: ["a"], anyOf: [{ platforms: ["ios"] }], everybody: true },
      ["/body/audience/users", "/body/audience/anyOf", "/body/audience/everybody"],
    ],
    ["a personal user twice", { personal: [...personal, ...personal] }, ["/body/audience/personal/1/user"]],
  ])("refuses %s", (_what, audience, found) => {
    expect(places({ audience })).toEqual(found);
  });

  it("takes 10,000 users, with those who are excluded", () => {
    const ids = (count: number, prefix: string) =>
      Array.from({ length: count }, (_, index) => prefix + index);
    const many = (excluded: number) => ({ users: ids(5_000, "u"), exceptUsers: ids(excluded, "x") });
    expect(places({ audience: many(5_000) })).toEqual([]);
    expect(places({ audience: many(5_001) })).toEqual(["/body/audience/users"]);
  });
});

describe("variables", () => {
  const texts = {
    en: { title: "Hi {{name}}", message: "{{ city }}" },
    de: { title: "Hallo", message: "{{name}}" },
  };

  it("are missed by user and name", () => {
    const personal = [
      { user: "u-1", variables: { name: "Ada", city: "Rome" } },
      { user: "u-2", variables: { name: "Bo" } },
      { user: "u-3" },
    ];
    const found = errors({ audience: { personal }, content: { texts, defaultLanguage: "en" } });
    expect(Object.keys(found)).toEqual([
      "/body/audience/personal/1/variables/city",
      "/body/audience/personal/2/variables/name",
      "/body/audience/personal/2/variables/city",
    ]);
    expect(found["/body/audience/personal/1/variables/city"]).toBe("is required: user u-2 has no city");
  });

  it("are refused in texts for users and filters, who have no values", () => {
    const content = { texts, defaultLanguage: "en" };
    const both = ["/body/content/texts/en", "/body/content/texts/de"];
    expect(places({ content })).toEqual(both);
    expect(places({ content, audience: { anyOf: [{ platforms: ["ios"] }] } })).toEqual(both);
  });
});

it("more names than a user may have values are refused once", () => {
  const message = Array.from({ length: 21 }, (_, index) => `{{a${index}}}`).join("");
  const personal = Array.from({ length: 1_000 }, (_, index) => ({ user: `u-${index}` }));
  const content = { texts: { en: { title: "t", message } } };
  expect(places({ audience: { personal }, content })).toEqual(["/body/content/texts"]);
  const one = { texts: { en: { title: "t", message: "{{a}}" } } };
  expect(places({ audience: { personal }, content: one })).toHaveLength(20);
});

describe("braces that begin no name", () => {
  it.each(['{{name | default: "you"}}', "{{user.name}}", "{{first name}}", "{{name", "{{{{name}}}}"])(
    "%s are refused, whatever values there are",
    (title) => {
      const content = { texts: { en: { title, message: "m" } } };
      const personal = [{ user: "u", variables: { name: "Ada" } }];
      expect(places({ content })).toContain("/body/content/texts/en");
      expect(places({ audience: { personal }, content })).toContain("/body/content/texts/en");
    },
  );
  it("are what is left when names have been taken out", () => {
    const content = { texts: { en: { title: "{ {{name}} }", message: "} {" } } };
    const personal = [{ user: "u", variables: { name: "Ada" } }];
    expect(places({ audience: { personal }, content })).toEqual([]);
  });
});

describe("what it says", () => {
  it.each<[string, WrittenNotification["content"], readonly string[]]>([
    ["nothing", {}, ["texts"]],
    ["a language that nobody knows", { texts: { "d e/x": text } }, ["texts/d e~1x"]],
    ["one language twice", { texts: { iw: text, he: text } }, ["texts/he"]],
    ["no default of several", { texts: { en: text, de: text } }, ["defaultLanguage"]],
    ["a default without a text", { texts: { en: text }, defaultLanguage: "de" }, ["defaultLanguage"]],
    [
      "a message of too many bytes",
      { texts: { de: { title: "t", message: "ü".repeat(2_001) } } },
      ["texts/de/message"],
    ],
    ["an image elsewhere", { texts: { en: text }, image: "../a.png" }, ["image"]],
    [
      "a silent text",
      { texts: { en: text }, silent: true, sound: "ping", badge: 0 },
      ["texts", "sound", "badge"],
    ],
    [
      "names that are kept",
      {
        texts: { en: text },
        data: { from: "", "google.x": "", gcm: "", aps: "", link: "", messageId: "", "": "", ok: "" },
      },
      ["data/from", "data/google.x", "data/gcm", "data/aps", "data/link", "data/messageId", "data/"],
    ],
  ])("refuses %s", (_what, content, found) => {
    expect(places({ content })).toEqual(found.map((place) => `/body/content/${place}`));
  });

  it.each(["https://a.example/b?c#d", "myapp://orders/1", "com.example.app:orders"])(
    "takes the link %s",
    (link) => {
      expect(places({ content: { texts: { en: text }, link } })).toEqual([]);
    },
  );
  it.each([
    "http://a.example",
    "/orders",
    "orders",
    "javascript:alert(1)",
    "https://",
    "https:a.example",
    "https:/a.example",
    "myapp://a b",
    "file:///etc",
  ])("refuses the link %s", (link) => {
    expect(places({ content: { texts: { en: text }, link } })).toEqual(["/body/content/link"]);
  });

  it("refuses an id of too many bytes for what it replaces", () => {
    expect(places({ delivery: { collapseId: "ü".repeat(32) } })).toEqual([]);
    expect(places({ delivery: { collapseId: "ü".repeat(33) } })).toEqual(["/body/delivery/collapseId"]);
  });
});

it("names all that is wrong at once", () => {
  expect(
    places({
      audience: { users: ["a"], anyOf: [{}, { languages: ["jp"] }] },
      content: {
        texts: { xx: text, en: { title: "{{a}}", message: "m" } },
        silent: true,
        link: "x",
        data: { aps: "" },
      },
      delivery: { collapseId: "x".repeat(65) },
    }),
  ).toHaveLength(8);
});
