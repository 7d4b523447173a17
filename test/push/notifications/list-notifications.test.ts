/** The list of notifications, as an operator pages through it. */
import { beforeAll, describe, expect, test } from "vitest";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { createLab, type Lab } from "./notification-lab.ts";

describe.each(backends)("the notifications on %s", (backend) => {
  let lab: Lab;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    lab = await createLab(backend);
    cleanup.defer(() => lab.drop());
  });

  test("the list has the newest first, page by page, and says how many there are", async () => {
    expect(await lab.notifications.list({ page: 0, size: 2 })).toEqual({
      ...{ content: [], number: 0, size: 2, totalElements: 0 },
    });
    const ids: string[] = [];
    for (let index = 0; index < 3; index += 1) {
      ids.unshift(await lab.accept());
      lab.clock.move(1);
    }
    const pages = await Promise.all([0, 1, 2].map((page) => lab.notifications.list({ page, size: 2 })));
    expect(pages.map(({ content }) => content.map(({ id }) => id))).toEqual([
      ids.slice(0, 2),
      ids.slice(2),
      [],
    ]);
    expect(pages.map(({ totalElements }) => totalElements)).toEqual([3, 3, 3]);
    expect(pages[0]?.content[0]).toEqual(await lab.notifications.get(ids[0] ?? ""));
  });
});
