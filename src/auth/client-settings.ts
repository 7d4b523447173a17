/**
 * The registered clients as an operator lists them: their form, their defaults, and the clients of
 * development mode, which production refuses.
 */
import { json } from "../platform/settings/json.ts";
import {
  type Environment,
  matching,
  type SettingKind,
  secretMatching,
  stricterInProduction,
} from "../platform/settings/kinds.ts";

/** The grants that a client can be permitted. */
export const grantTypes = ["password", "refresh_token", "phone_otp", "auth", "phone_otp_token"] as const;
export type GrantType = (typeof grantTypes)[number];

/** A client as it is listed in OAUTH_SERVER_CLIENTS, with the defaults filled in. */
export interface ClientRegistration {
  /** 1 to 128 visible ASCII characters; unique. */
  readonly clientId: string;
  /** Printable ASCII; in production at least 16 characters. */
  readonly clientSecret: string;
  /** For people; the client's id unless it is given. */
  readonly clientName: string;
  readonly clientAuthenticationMethods: readonly "client_secret_basic"[];
  readonly grantTypes: readonly GrantType[];
  /** What its tokens may be scoped to (RFC 6749 section 3.3). */
  readonly scopes: readonly string[];
  readonly clientSettings: {
    /** Further members of `aud`, beside the client's id. */
    readonly audiences: readonly string[];
    /** Whether it may introspect any token of this issuer. */
    readonly mayIntrospect: boolean;
  };
  readonly tokenSettings: {
    readonly accessTokenSeconds: number;
    readonly refreshTokenSeconds: number;
    /** How long a rotated refresh token still answers its successor. */
    readonly refreshGraceSeconds: number;
  };
}

/** The internal client of development mode. */
export const developmentInternalClient = {
  clientId: "internal",
  clientSecret: "internal-dev-secret",
} as const;

/** The registered clients of development mode. */
export const developmentClients = [
  {
    clientId: "mobile-app",
    clientSecret: "mobile-app-dev-secret",
    clientName: "Mobile app (development)",
    grantTypes,
    scopes: ["profile", "orders"],
    clientSettings: { audiences: ["storefront"] },
  },
  {
    clientId: "backoffice",
    clientSecret: "backoffice-dev-secret",
    clientName: "Back office (development)",
    grantTypes: ["password", "refresh_token"],
    scopes: ["notifications:send"],
  },
] as const satisfies readonly Partial<
  Omit<ClientRegistration, "clientSettings"> & { clientSettings: object }
>[];

const developmentSecrets: ReadonlySet<string> = new Set(
  [developmentInternalClient, ...developmentClients].map(({ clientSecret }) => clientSecret),
);

const idForm = /^[\x21-\x7e]{1,128}$/;
const secretForm = /^[\x20-\x7e]{1,256}$/;
const idExpects = "1 to 128 visible ASCII characters";
const secretExpects = "printable ASCII characters, at most 256 and in production at least 16";

/** The id of a client. */
export const clientId: SettingKind<string> = matching(idExpects, idForm);

/** The secret of a client. */
export const clientSecret = stricterInProduction(secretMatching(secretExpects, secretForm), weaknessOf);

/** Why production does not take a secret. */
function weaknessOf(secret: string): string | undefined {
  if (developmentSecrets.has(secret)) return "must not be a secret of development mode";
  return secret.length < 16 ? "must have at least 16 characters in production" : undefined;
}

function seconds(min: number, max: number, standard: number) {
  return {
    type: "integer",
    minimum: min,
    maximum: max,
    default: standard,
    description: `an integer from ${min} to ${max}`,
  };
}

function texts(form: RegExp, description: string) {
  return {
    type: "array",
    uniqueItems: true,
    maxItems: 64,
    items: { type: "string", pattern: form.source, description },
  };
}

const registrationSchema = {
  type: "object",
  description: "an object that registers a client",
  additionalProperties: false,
  required: ["clientId", "clientSecret", "grantTypes"],
  properties: {
    clientId: { type: "string", pattern: idForm.source, description: idExpects },
    clientSecret: { type: "string", pattern: secretForm.source, description: secretExpects },
    clientName: {
      type: "string",
      pattern: "^\\P{Cc}{1,200}$",
      description: "1 to 200 characters, none of them a control character",
    },
    clientAuthenticationMethods: {
      type: "array",
      uniqueItems: true,
      minItems: 1,
      items: { const: "client_secret_basic", description: "client_secret_basic, the only method there is" },
      default: ["client_secret_basic"],
      description: "an array of client_secret_basic",
    },
    grantTypes: {
      type: "array",
      uniqueItems: true,
      items: { enum: grantTypes, description: `one of ${grantTypes.join(", ")}` },
      description: "an array of grant types",
    },
    scopes: {
      ...texts(/^[\x21\x23-\x5b\x5d-\x7e]{1,64}$/, '1 to 64 visible ASCII characters without " and \\'),
      default: [],
      description: "an array of at most 64 scopes",
    },
    clientSettings: {
      type: "object",
      additionalProperties: false,
      properties: {
        audiences: {
          ...texts(/^[\x21-\x7e]{1,128}$/, "1 to 128 visible ASCII characters"),
          default: [],
          description: "an array of at most 64 audiences",
        },
        mayIntrospect: { type: "boolean", default: false, description: "true or false" },
      },
      default: {},
      description: "an object with audiences and mayIntrospect",
    },
    tokenSettings: {
      type: "object",
      additionalProperties: false,
      properties: {
        accessTokenSeconds: seconds(1, 86_400, 900),
        refreshTokenSeconds: seconds(1, 315_360_000, 2_592_000),
        refreshGraceSeconds: seconds(0, 3600, 30),
      },
      default: {},
      description: "an object with accessTokenSeconds, refreshTokenSeconds and refreshGraceSeconds",
    },
  },
} as const;

type Listed = Omit<ClientRegistration, "clientName"> & { clientName?: string };

/** Claims of a token must stay short, whatever its client lists. */
const maxJoinedLength = 2000;

function problemsOf(clients: readonly Listed[], environment: Environment): readonly string[] {
  const problems: string[] = [];
  const firstOf = new Map<string, number>();
  for (const [index, client] of clients.entries()) {
    const first = firstOf.get(client.clientId);
    if (first === undefined) firstOf.set(client.clientId, index);
    else problems.push(`[${index}].clientId is also that of [${first}]`);
    const weakness = environment === "production" ? weaknessOf(client.clientSecret) : undefined;
    if (weakness) problems.push(`[${index}].clientSecret ${weakness}`);
    const lists = { scopes: client.scopes, "clientSettings.audiences": client.clientSettings.audiences };
    for (const [path, list] of Object.entries(lists)) {
      if (list.join(" ").length > maxJoinedLength) {
        problems.push(`[${index}].${path} must not be longer than ${maxJoinedLength} characters together`);
      }
    }
  }
  return problems;
}

const listedClients = json<readonly Listed[]>(
  "a JSON array of clients",
  { type: "array", items: registrationSchema, description: "an array of clients" },
  problemsOf,
);

/** All registered clients. */
export const clientRegistrations: SettingKind<readonly ClientRegistration[]> = {
  ...listedClients,
  parse: (text, environment) => {
    const parsed = listedClients.parse(text, environment);
    if ("problems" in parsed) return parsed;
    return { value: parsed.value.map((client) => ({ clientName: client.clientId, ...client })) };
  },
};
