import { sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { currentSpan, inSpan, within } from "../../../../src/platform/base/tracing.ts";
import { batched } from "../../../../src/platform/database/sql/batched-lookup.ts";
import { inStatementSpan, inTransactionSpan } from "../../../../src/platform/database/sql/statement-spans.ts";
import { prepared } from "../../../../src/platform/database/sql/statements.ts";
import { recordSpans } from "../../../support/recorded-spans.ts";

const request = { name: "request", kind: "server" } as const;
const done = async () => "done";

describe("the span of a statement", () => {
  test.each([
    [`select "id" from "auth"."clients" where "auth"."clients"."id" = $1`, "SELECT auth.clients"],
    [
      "select x from unnest((select $1::text[])) as t (x) join auth.authorizations a on true",
      "SELECT auth.authorizations",
    ],
    [
      `insert into "push"."devices" (a) values ($1) on conflict (a) do update set a = 1`,
      "INSERT push.devices",
    ],
    [`update "push"."devices" d set "x" = $1`, "UPDATE push.devices"],
    [`delete from "auth"."outbox" where "position" = any($1)`, "DELETE auth.outbox"],
    [
      `with a as (select from "auth"."identities" for update), b as (insert into "auth"."authorizations" select 1)
       insert into "auth"."outbox" select 1`,
      "INSERT auth.authorizations INSERT auth.outbox",
    ],
    ["with a as (select 1) select from a", "SELECT"],
    ["commit", "COMMIT"],
    ["", "STATEMENT"],
  ])("says what is done, to which tables: %s", async (text, name) => {
    const spans = recordSpans();
    await inSpan(request, () => inStatementSpan(text, done));
    const [operation] = name.split(" ");
    expect(spans.slice(1)).toMatchObject([
      {
        name,
        kind: "client",
        attributes: {
          "db.system.name": "postgresql",
          "db.operation.name": operation,
          "db.query.summary": name,
        },
        error: null,
      },
    ]);
  });

  test("in a transaction is a part of its span; what is done in the background has none", async () => {
    const spans = recordSpans();
    await inTransactionSpan(() => inStatementSpan("select 1", done));
    expect(spans).toEqual([]);
    await inSpan(request, () => inTransactionSpan(() => inStatementSpan("select 1", done)));
    const [around, transaction, statement] = spans;
    expect(transaction?.parent?.traceparent).toBe(around?.traceparent);
    expect(statement?.parent?.traceparent).toBe(transaction?.traceparent);
  });

  test("that fails has PostgreSQL's code, and nothing of the message", async () => {
    const spans = recordSpans();
    const failure = Object.assign(new Error("Key (phone)=(+15550001111)"), { code: "23505" });
    const failing = inSpan(request, () =>
      inStatementSpan("select 1", () => Promise.reject(new Error("Failed query", { cause: failure }))),
    );
    await failing.catch(() => undefined);
    expect(spans[1]).toMatchObject({ error: "23505", attributes: { "db.response.status_code": "23505" } });
    expect(JSON.stringify(spans)).not.toContain("+1555");
  });
});

test("a transaction that its work rolls back has not failed; one that the database ends has", async () => {
  const spans = recordSpans();
  const deadlock = Object.assign(new Error("deadlock detected"), { code: "40P01" });
  for (const error of [new Error("the phone is taken"), deadlock])
    await inSpan(request, () => inTransactionSpan(() => Promise.reject(error))).catch(() => undefined);
  const ended = spans.filter(({ name }) => name === "transaction").map(({ error }) => error);
  expect(ended).toEqual([null, "40P01"]);
});

describe("a statement that requests share", () => {
  const look = () =>
    batched<string, string>({
      load: (keys) => inStatementSpan("select 1", async () => new Map(keys.map((key) => [key, key]))),
    });

  const flags = (sampled: string) => ({
    ...request,
    parent: { traceparent: `00-${"a".repeat(32)}-${"b".repeat(16)}-${sampled}` },
  });

  test("is a part of the first, and each of the others has a span that links to it", async () => {
    const spans = recordSpans();
    const shared = look();
    const requests = Array.from({ length: 40 }, (_, index) => inSpan(request, () => shared(`${index}`)));
    await Promise.all(requests);
    const [first, ...others] = spans.slice(0, 40).map(({ traceparent }) => traceparent);
    const [batch, ...waits] = spans.filter(({ name }) => name === "batch");
    const statement = spans.find(({ kind }) => kind === "client");
    expect(batch).toMatchObject({
      parent: { traceparent: first },
      links: others.slice(0, 32).map((traceparent) => ({ traceparent })),
      attributes: { "db.operation.batch.size": 40 },
      error: null,
    });
    expect(statement?.parent?.traceparent).toBe(batch?.traceparent);
    expect(waits.map(({ parent, links, error }) => [parent?.traceparent, links, error])).toEqual(
      others.map((traceparent) => [traceparent, [{ traceparent: batch?.traceparent }], null]),
    );
    expect(spans).toHaveLength(81);
  });

  test("fails for each of them", async () => {
    const spans = recordSpans();
    const error = Object.assign(new Error("too late"), { code: "57014" });
    const shared = batched<string, string>({
      load: () => inStatementSpan("select 1", () => Promise.reject(error)),
    });
    await Promise.allSettled(
      Array.from({ length: 3 }, (_, index) => inSpan(request, () => shared(`${index}`))),
    );
    const ends = spans.filter(({ name }) => name === "batch").map((span) => span.error);
    expect(ends).toEqual(["57014", "57014", "57014"]);
  });

  test("has spans for a bounded number of those who ask for the same", async () => {
    const spans = recordSpans();
    const shared = look();
    const found = await Promise.all(
      Array.from({ length: 1_000 }, () => inSpan(request, () => shared("same"))),
    );
    expect(new Set(found)).toEqual(new Set(["same"]));
    expect(spans.filter(({ name }) => name === "batch")).toHaveLength(256);
  });

  test("is seen by those that are recorded, however many that are not came before", async () => {
    const spans = recordSpans();
    const shared = look();
    await Promise.all(
      Array.from({ length: 40 }, (_, index) =>
        inSpan(flags(index === 35 || index === 39 ? "01" : "00"), () => shared(`${index}`)),
      ),
    );
    const batches = spans.filter(({ name }) => name === "batch");
    expect(batches.map(({ parent }) => parent?.traceparent)).toEqual([
      spans[35]?.traceparent,
      spans[39]?.traceparent,
    ]);
  });

  test("is a part of the only one that is recorded", async () => {
    const spans = recordSpans();
    const shared = look();
    await Promise.all([
      inSpan(flags("00"), () => shared("a")),
      inSpan(flags("01"), () => shared("b")),
      within(undefined, () => shared("c")),
    ]);
    expect(spans.map(({ name }) => name)).toEqual(["request", "request", "SELECT"]);
    expect(spans[2]?.parent?.traceparent).toBe(spans[1]?.traceparent);
  });

  test("that is prepared keeps nothing of the request that comes first", async () => {
    recordSpans();
    const seen: unknown[] = [];
    const statement = prepared(["a"], ({ a }) => {
      seen.push(currentSpan());
      return sql`select ${a}`;
    });
    await inSpan(request, async () => statement({ a: 1 }));
    expect(seen).toEqual([undefined]);
  });

  test("has no span where nobody who asks is recorded", async () => {
    const spans = recordSpans();
    expect(await look()("a")).toBe("a");
    expect(spans).toEqual([]);
  });
});
