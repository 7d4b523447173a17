/**
 * The registered clients as an operator lists them, and those of development mode, whose secrets production refuses.
 */
import * as v from "valibot";
import { differingIn, distinct, exactObject, json, secrets } from "../platform/settings/json.ts";
import {
  type Environment,
  matching,
  must,
  refusing,
  secretWeakness,
  stricterInProduction,
} from "../platform/settings/kinds.ts";
import { verificationKeys } from "./key-settings.ts";

/** The grants of users that a client with a secret can be permitted, and that every client is told of. */
export const grantTypes = ["password", "refresh_token", "phone_otp", "auth", "phone_otp_token"] as const;
/** Those that a client with a secret can be permitted: one of them is for itself. */
export const secretGrantTypes = [...grantTypes, "client_credentials"] as const;
/** Those that a client without one can be permitted. */
const publicGrantTypes = ["authorization_code", "refresh_token"] as const;
export type GrantType = (typeof secretGrantTypes | typeof publicGrantTypes)[number];
export const allGrantTypes = [...new Set<GrantType>([...secretGrantTypes, ...publicGrantTypes])];

/** The internal client of development mode. */
export const developmentInternalClient = {
  clientId: "internal",
  clientSecret: "internal-dev-secret",
} as const;

/** The registered clients of development mode. */
export const developmentClients = [
  {
    clientId: "backend",
    clientSecret: "backend-dev-secret",
    clientName: "Back end (development)",
    grantTypes,
    scopes: ["profile", "orders"],
    clientSettings: { audiences: ["storefront", "push"] },
  },
  {
    clientId: "backoffice",
    clientSecret: "backoffice-dev-secret",
    clientName: "Back office (development)",
    grantTypes: ["client_credentials", "password", "refresh_token"],
    scopes: ["notifications:send"],
    clientSettings: { audiences: ["push"] },
  },
  {
    clientId: "api",
    clientSecret: "api-dev-secret",
    clientName: "API (development)",
    grantTypes: [],
    clientSettings: { mayIntrospect: true },
  },
  {
    clientId: "app",
    clientName: "App (development)",
    clientAuthenticationMethods: ["none"],
    grantTypes: publicGrantTypes,
    scopes: ["profile", "orders", "sessions"],
    clientSettings: { audiences: ["storefront", "push"], signUp: true },
  },
] as const;

/** The public secrets of development mode, of those clients that have one. */
export const developmentSecrets: ReadonlySet<string> = new Set(
  [developmentInternalClient, ...developmentClients].flatMap((client) =>
    "clientSecret" in client ? [client.clientSecret] : [],
  ),
);

/** The id of a client. */
export const clientId = matching("1 to 128 visible ASCII characters", /^[\x21-\x7e]{1,128}$/);

/** The secret of a client. */
export const clientSecret = stricterInProduction(
  matching("printable ASCII characters, at most 256 and in production at least 16", /^[\x20-\x7e]{1,256}$/),
  (secret) => {
    if (developmentSecrets.has(secret)) return "must not be a secret of development mode";
    return secret.length < 16 ? "must have at least 16 characters in production" : secretWeakness(secret);
  },
);

function seconds(min: number, max: number, standard: number) {
  const expects = must(`an integer from ${min} to ${max}`);
  const range = v.pipe(
    v.number(expects),
    v.integer(expects),
    v.minValue(min, expects),
    v.maxValue(max, expects),
  );
  return v.optional(range, standard);
}

/** Characters of a list joined by spaces. Keeps the claims of a token short. */
const maxJoinedLength = 2000;

function texts(expects: string, item: v.GenericSchema<unknown, string>) {
  const list = v.pipe(
    distinct(expects, item),
    v.maxLength(64, must(expects)),
    v.check(
      (values) => values.join(" ").length <= maxJoinedLength,
      `must not be longer than ${maxJoinedLength} characters together`,
    ),
  );
  return v.optional(list, []);
}

const scope = matching(
  '1 to 64 visible ASCII characters without " and \\',
  /^[\x21\x23-\x5b\x5d-\x7e]{1,64}$/,
);
const methods = ["client_secret_basic", "client_secret_post"] as const;
const methodExpects = `an array of ${methods.join(" and ")}`;
const method = v.picklist(methods, must(`one of ${methods.join(", ")}`));

const grantsOf = (
  types: readonly GrantType[],
  expects = "an array of grant types",
): v.GenericSchema<unknown, GrantType[]> =>
  v.pipe(distinct(expects, v.picklist(types, must(`one of ${types.join(", ")}`))), v.description(expects));

/** Members of `aud` in addition to the client's id. */
const audiences = texts("an array of at most 64 audiences", clientId);

const organizations = v.pipe(
  distinct(
    "an array of ids of organizations",
    matching("1 to 128 printable ASCII characters", /^[ -~]{1,128}$/),
  ),
  v.maxLength(1000, must("an array of at most 1000 ids of organizations")),
);

/** What only a client that has a secret can have. */
const secretMembers = (environment: Environment) => ({
  /** One secret, or the old and the new one while it is replaced. */
  clientSecret: secrets(clientSecret(environment)),
  /** How the client may send its id and secret (RFC 7591 section 2). */
  clientAuthenticationMethods: v.optional(
    v.pipe(distinct(methodExpects, method), v.minLength(1, must(methodExpects))),
    ["client_secret_basic"],
  ),
  grantTypes: grantsOf(secretGrantTypes, "an array of grant types, [] for a client that only introspects"),
  clientSettings: v.optional(
    exactObject("an object with audiences, mayIntrospect and organizations", {
      audiences,
      /** Whether the client may introspect any token of this issuer. */
      mayIntrospect: v.optional(v.boolean(must("true or false")), false),
      /** Those that the client may act for, by the grant client_credentials. */
      organizations: v.optional(organizations),
    }),
    {},
  ),
});

/** What a client that has none has in their place (RFC 6749 section 2.1), such as an app. */
const publicMembers = (environment: Environment) => ({
  clientSecret: v.optional(v.never("must not be there, as the method is none")),
  clientAuthenticationMethods: v.strictTuple([v.literal("none")], must("none alone, or without it")),
  grantTypes: v.pipe(
    grantsOf(publicGrantTypes),
    v.check(
      (types) => types.includes("authorization_code"),
      "must name authorization_code, as the method is none",
    ),
  ),
  clientSettings: v.optional(
    exactObject("an object with audiences, signUp and attestationKeys", {
      audiences,
      mayIntrospect: v.optional(v.literal(false, "must not be true, as the method is none"), false),
      /** Whether a phone that nobody has makes a new identity, with an id of ours. */
      signUp: v.optional(v.boolean(must("true or false")), false),
      /** Public keys of the back end that attests the client's apps, SPKI; none: they begin without. */
      attestationKeys: v.optional(
        v.pipe(
          v.array(verificationKeys(environment), must("an array of public keys in PEM form")),
          v.transform((keys) => keys.flat()),
        ),
        [],
      ),
    }),
    {},
  ),
});

/** A client without a secret. */
export function isPublic({ clientAuthenticationMethods: listed }: ClientRegistration): boolean {
  return listed[0] === "none";
}

/** What every client can have. */
const members = {
  clientId,
  /** A display name; the client's id by default. */
  clientName: v.optional(
    matching("1 to 200 characters, none of them a control character", /^\P{Cc}{1,200}$/u),
  ),
  /** The scopes that the client may request (RFC 6749 section 3.3). */
  scopes: texts("an array of at most 64 scopes", scope),
  tokenSettings: v.optional(
    v.pipe(
      exactObject("an object with accessTokenSeconds, refreshTokenSeconds and refreshGraceSeconds", {
        accessTokenSeconds: seconds(1, 86_400, 900),
        refreshTokenSeconds: seconds(1, 315_360_000, 2_592_000),
        /** How long a retry with the replaced refresh token still gets the same new one. */
        refreshGraceSeconds: seconds(0, 3600, 30),
      }),
      refusing(({ refreshGraceSeconds: grace, accessTokenSeconds: life }) =>
        grace > life
          ? `must have a refreshGraceSeconds of at most its accessTokenSeconds, but has ${grace} and ${life}`
          : undefined,
      ),
    ),
    {},
  ),
};

/** One client. Optional members have defaults. */
const registration = (environment: Environment) => {
  const expects = "an object that registers a client";
  const ofSecret = v.pipe(
    exactObject(expects, { ...members, ...secretMembers(environment) }),
    refusing(({ grantTypes: permitted, clientSettings: { organizations: listed } }) =>
      listed && !permitted.includes("client_credentials")
        ? "must have the grant client_credentials, as it has organizations"
        : undefined,
    ),
  );
  const ofNone = exactObject(expects, { ...members, ...publicMembers(environment) });
  return v.pipe(
    v.lazy((client) => {
      const listed: unknown = Object(client).clientAuthenticationMethods;
      return Array.isArray(listed) && listed.includes("none") ? ofNone : ofSecret;
    }),
    v.transform(({ clientSecret: clientSecrets = [], ...client }) => ({
      ...client,
      clientSecrets,
      clientName: client.clientName ?? client.clientId,
    })),
  );
};

/** A client as it is listed in OAUTH_SERVER_CLIENTS, with the defaults filled in. */
export type ClientRegistration = v.InferOutput<ReturnType<typeof registration>>;

/** What a list says, whatever the order of its clients and members, and without what is as it would be anyway. */
export function canonicalList(registrations: readonly ClientRegistration[]): string {
  const listed = registrations.map((one) => {
    const { clientId } = one;
    const { clientSecrets: _listed, ...standard } = v.parse(registration("development"), {
      clientId,
      clientSecret: "any",
      grantTypes: [],
    });
    return { ...differing(one, standard), clientId };
  });
  return JSON.stringify(listed.sort((one, other) => (one.clientId < other.clientId ? -1 : 1)));
}

/** The members that are not the standard's, in alphabetical order. */
function differing(value: object, standard: object): object {
  const members: [string, unknown][] = [];
  for (const [name, member] of Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1))) {
    const usual: unknown = Reflect.get(standard, name);
    if (JSON.stringify(member) === JSON.stringify(usual)) continue;
    members.push([name, isRecord(member) && isRecord(usual) ? differing(member, usual) : member]);
  }
  return Object.fromEntries(members);
}

function isRecord(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Refuses a secret that two clients have: whoever knows it for one of them could pass for the other. */
const distinctSecrets = v.rawCheck<ClientRegistration[]>(({ dataset, addIssue }) => {
  if (!dataset.typed) return;
  const owners = new Map<string, number>();
  for (const [index, { clientSecrets }] of dataset.value.entries()) {
    for (const secret of clientSecrets) {
      const owner = owners.get(secret);
      if (owner === undefined) owners.set(secret, index);
      else addIssue({ message: `[${index}].clientSecret is also that of [${owner}]` });
    }
  }
});

/** All registered clients. */
export const clientRegistrations = (environment: Environment) => {
  const list = v.pipe(
    v.array(registration(environment), must("an array of clients")),
    differingIn<ClientRegistration>("clientId"),
  );
  return json("a JSON array of clients", environment === "production" ? v.pipe(list, distinctSecrets) : list);
};
