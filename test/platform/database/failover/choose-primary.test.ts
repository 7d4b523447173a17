/** Which of several hosts is used, by what they say. */
import { describe, expect, test } from "vitest";
import type { ReplicationState } from "../../../../src/platform/database/connections/replication-state.ts";
import { choosePrimary, type Known } from "../../../../src/platform/database/failover/choose-primary.ts";
import type { Address } from "../../../../src/platform/database/settings.ts";
import { a, b, c, follower, primary, standby } from "../../../support/cluster-hosts.ts";

describe("of what the hosts say", () => {
  const nothing: Known = { cluster: undefined, timelines: new Map() };
  const second: Known = { cluster: "x", timelines: new Map([["x", 2]]) };
  /** Another service of the process has used the cluster. */
  const others: Known = { ...second, cluster: undefined };
  type Hosts = readonly (readonly [Address, ReplicationState])[];
  type Row = readonly [
    what: string,
    hosts: Hosts,
    known: Known,
    last: Address | undefined,
    used: Address | undefined,
    roles: string,
  ];

  test.each<Row>([
    [
      "the only primary",
      [
        [a, standby()],
        [b, primary(1)],
      ],
      nothing,
      undefined,
      b,
      "standby primary",
    ],
    [
      "the one that was promoted",
      [
        [a, primary(1)],
        [b, primary(2)],
      ],
      nothing,
      a,
      b,
      "outdated primary",
    ],
    [
      "of two promotions the later",
      [
        [a, primary(3)],
        [b, primary(2)],
      ],
      second,
      b,
      a,
      "primary outdated",
    ],
    [
      "never an older one than was used",
      [
        [a, primary(1)],
        [b, standby()],
      ],
      second,
      b,
      undefined,
      "outdated standby",
    ],
    ["nor if it is alone", [[a, primary(1)]], second, a, undefined, "outdated"],
    [
      "the same again after its restart",
      [
        [a, primary(2)],
        [b, standby()],
      ],
      second,
      a,
      a,
      "primary standby",
    ],
    [
      "of several alike the first",
      [
        [a, primary(2)],
        [b, primary(2)],
      ],
      nothing,
      undefined,
      a,
      "primary primary",
    ],
    [
      "of several alike the last used",
      [
        [a, primary(2)],
        [b, primary(2)],
      ],
      second,
      b,
      b,
      "primary primary",
    ],
    [
      "none of another cluster",
      [
        [a, primary(7, "y")],
        [b, primary(2)],
      ],
      second,
      undefined,
      b,
      "foreign primary",
    ],
    ["nor if it is alone", [[a, primary(7, "y")]], second, undefined, undefined, "foreign"],
    [
      "none where it is not known which cluster is meant",
      [
        [a, primary(7, "y")],
        [b, primary(2)],
      ],
      nothing,
      undefined,
      undefined,
      "foreign foreign",
    ],
    [
      "nor by a standby",
      [
        [a, primary(7)],
        [b, standby("y")],
      ],
      nothing,
      undefined,
      undefined,
      "foreign foreign",
    ],
    [
      "none among standbys",
      [
        [a, standby()],
        [b, standby()],
      ],
      second,
      a,
      undefined,
      "standby standby",
    ],
    ["none older than another service used", [[a, primary(1)]], others, undefined, undefined, "outdated"],
    ["none where nobody responds", [], nothing, undefined, undefined, ""],
    [
      "none older than a standby has followed",
      [
        [a, primary(1)],
        [b, follower(2)],
      ],
      nothing,
      a,
      undefined,
      "outdated standby",
    ],
    [
      "the one that a standby may not have noticed yet",
      [
        [a, primary(2)],
        [b, follower(1)],
      ],
      nothing,
      undefined,
      a,
      "primary standby",
    ],
  ])("%s is used", (_, hosts, known, last, used, roles) => {
    const found = hosts.map(([address, state]) => ({ address, state }));
    const choice = choosePrimary({ found, silent: [], returned: new Set() }, known, last);
    expect(choice.primary?.address).toBe(used);
    expect(choice.roles.map(({ role }) => role).join(" ")).toBe(roles);
  });

  type SilentRow = readonly [
    what: string,
    before: ReplicationState | undefined,
    other: ReplicationState,
    used: Address | undefined,
  ];

  test.each<SilentRow>([
    ["not used beside a host that has never said anything", undefined, standby(), undefined],
    ["not used beside one that was a standby", follower(1), standby(), undefined],
    ["not used beside one that wrote the same timeline", primary(2), standby(), undefined],
    ["used beside one that wrote an older timeline", primary(1), standby(), a],
    ["used beside one of another cluster", primary(7, "y"), standby(), a],
    ["used beside any, if a standby receives from it", undefined, follower(2, true), a],
    ["not used for a standby that received from it some time ago", undefined, follower(2), undefined],
    ["not used for a standby that receives an older timeline", undefined, follower(1, true), undefined],
  ])("where a host says nothing, a primary is %s", (_, before, other, used) => {
    const found = [
      { address: a, state: primary(2) },
      { address: b, state: other },
    ];
    const heard = { found, silent: [{ address: c, lastState: before }], returned: new Set<Address>() };
    const choice = choosePrimary(heard, second, a);
    expect(choice.primary?.address).toBe(used);
    expect(choice.uncertain?.address).toBe(used ? undefined : a);
  });

  test("no standby speaks for a primary that was away, and one speaks for another", () => {
    const found = [
      { address: a, state: primary(2) },
      { address: b, state: follower(2, true) },
    ];
    const heard = { found, silent: [{ address: c, lastState: undefined }] };
    const chosen = (...returned: Address[]) =>
      choosePrimary({ ...heard, returned: new Set(returned) }, second, a).primary?.address;
    expect(chosen(a)).toBeUndefined();
    expect(chosen(c)).toBe(a);
  });
});
