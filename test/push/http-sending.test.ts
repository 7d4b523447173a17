/** Sending to anyone over HTTP: what is passed on, what is sent back, and what is refused with all that is wrong. */
import { describe, expect, it } from "vitest";
import { id, preview, pushOperations } from "./http-fixture.ts";

const { asked, asOffice, asUser } = pushOperations();
const texts = { en: { title: "Hello", message: "How are you?" } };
const notification = { audience: { users: ["u-1"] }, content: { texts } };

describe.each([
  ["createNotification", 201, { id, warnings: [] }],
  ["previewNotification", 200, preview],
])("%s", (operation, status, body) => {
  it("passes a notification on as it was written", async () => {
    const json = { ...notification, delivery: { priority: "normal", history: null } };
    const response = await asOffice(operation, { json, headers: { "Idempotency-Key": "k" } });
    expect([response.status, response.body]).toEqual([status, body]);
    const own = operation === "createNotification" ? ["office", json, "k"] : [json];
    expect(asked).toEqual(own);
  });

  it("takes null for all that may be absent", async () => {
    const none = (names: string) => Object.fromEntries(names.split(" ").map((name) => [name, null]));
    const json = {
      audience: {
        ...none("users personal except exceptUsers everybody"),
        anyOf: [{ languages: ["de"], ...none("timeZones utcOffsets platforms") }],
      },
      content: {
        texts,
        ...none(
          "defaultLanguage image link data sound badge channel category thread interruptionLevel silent tooLong",
        ),
      },
      delivery: none("priority ttlSeconds collapseId maxPerSecond history"),
    };
    expect((await asOffice(operation, { json })).status).toBe(status);
    expect((await asOffice(operation, { json: { ...json, delivery: null } })).status).toBe(status);
  });

  it("names all that is wrong at once, whether by the schema or beyond it", async () => {
    const users = Array.from({ length: 10_001 }, (_, index) => `u-${index}`);
    const json = {
      audience: {
        users,
        personal: [{ user: "p", variables: {} }],
        anyOf: [{}, { languages: ["de", "jp"] }, { platforms: ["tv"] }],
      },
      content: {
        texts: { ...texts, xx: texts.en, de: { title: "{{name}}", message: "m" } },
        silent: true,
        link: "http://shop.example.com",
        data: { number: 7, from: "x" },
      },
      delivery: { ttlSeconds: 59, priority: "urgent" },
    };
    const response = await asOffice(operation, { json });
    expect(response.status).toBe(400);
    const pointers = Object(response.body).errors.map(({ pointer }: { pointer: string }) => pointer);
    expect(pointers.toSorted()).toEqual(
      [
        ...[
          "users",
          "anyOf",
          "anyOf/0",
          "anyOf/1/languages/1",
          "anyOf/2/platforms/0",
          "personal/0/variables/name",
        ].map((place) => `audience/${place}`),
        ...["texts", "texts/xx", "link", "data/number", "data/from", "defaultLanguage"].map(
          (place) => `content/${place}`,
        ),
        ...["ttlSeconds", "priority"].map((place) => `delivery/${place}`),
      ]
        .map((place) => `/body/${place}`)
        .toSorted(),
    );
    expect(asked).toEqual([]);
  });

  it("says of each place what is wrong there, and nothing else", async () => {
    const content = { ...notification.content, image: "https://a.example/a.png" };
    const wrong = { ...notification, content, delivery: { ttl: 60 } };
    const { body } = await asOffice(operation, { json: wrong });
    const errors = [
      { pointer: "/body/content/image", message: expect.stringContaining("a name below") },
      { pointer: "/body/delivery/ttl", message: "is not a member of this object" },
    ];
    expect(body).toMatchObject({ errors });
  });

  it("takes a body of 1 MiB and not a byte more", async () => {
    const users = Array.from({ length: 9_000 }, (_, index) => `${index}`.padEnd(100, "x"));
    const text = JSON.stringify({ ...notification, audience: { users } });
    const send = (bytes: number) =>
      asOffice(operation, { raw: text.padEnd(bytes), headers: { "Content-Type": "application/json" } });
    expect((await send(1_048_576)).status).toBe(status);
    expect((await send(1_048_577)).status).toBe(413);
  });

  it("is not for users", async () => {
    expect((await asUser(operation, { json: notification })).status).toBe(403);
  });
});

it("says where the notification is", async () => {
  const { headers } = await asOffice("createNotification", { json: notification });
  expect(headers.get("location")).toBe(`/api/push-orchestration/v1/pushprovider/notifications/${id}`);
  expect(headers.get("notification-id")).toBe(id);
});

it("lists recipients of a notification in either case, by pages", async () => {
  const response = await asOffice("listRecipients", {
    path: { id: id.toUpperCase() },
    query: "?page=2&size=100",
  });
  expect(response.body).toMatchObject({ content: [], totalElements: 0 });
  expect(asked).toMatchObject([id, { page: 2, size: 100 }]);
});
