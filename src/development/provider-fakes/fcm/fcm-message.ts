/**
 * The body of `messages:send`: its fields, their types, and further rules of FCM. Field names are accepted in
 * snake_case and camelCase, as in every API of Google.
 */
import type { FieldViolation } from "./fcm-responses.ts";

/** Bytes of a payload. */
const maxPayload = 4096;
const maxTtlSeconds = 2_419_200;

/** A message with its types checked. */
export interface FcmMessage {
  readonly token?: string;
  readonly topic?: string;
  readonly condition?: string;
  readonly data?: Readonly<Record<string, string>>;
  readonly notification?: Readonly<Record<string, string>>;
  readonly android?: {
    readonly ttl?: string;
    readonly notification?: Readonly<Record<string, unknown>>;
    readonly data?: Readonly<Record<string, string>>;
  };
  readonly apns?: { readonly headers?: Readonly<Record<string, string>>; readonly payload?: object };
  readonly webpush?: FcmWebPush;
}

interface FcmWebPush {
  readonly fcm_options?: { readonly link?: string };
  readonly fcmOptions?: { readonly link?: string };
}

type Type = "string" | "boolean" | "integer" | "struct" | "strings" | "map" | readonly string[] | Fields;
interface Fields {
  readonly [name: string]: Type;
}

const priorities = [
  "PRIORITY_UNSPECIFIED",
  "PRIORITY_MIN",
  "PRIORITY_LOW",
  "PRIORITY_DEFAULT",
  "PRIORITY_HIGH",
  "PRIORITY_MAX",
];
const lightSettings: Fields = { color: "struct", light_on_duration: "string", light_off_duration: "string" };
const analytics: Fields = { analytics_label: "string" };
const androidNotification: Fields = {
  title: "string",
  body: "string",
  icon: "string",
  color: "string",
  sound: "string",
  tag: "string",
  click_action: "string",
  body_loc_key: "string",
  body_loc_args: "strings",
  title_loc_key: "string",
  title_loc_args: "strings",
  channel_id: "string",
  ticker: "string",
  sticky: "boolean",
  event_time: "string",
  local_only: "boolean",
  notification_priority: priorities,
  default_sound: "boolean",
  default_vibrate_timings: "boolean",
  default_light_settings: "boolean",
  vibrate_timings: "strings",
  visibility: ["VISIBILITY_UNSPECIFIED", "PRIVATE", "PUBLIC", "SECRET"],
  notification_count: "integer",
  light_settings: lightSettings,
  image: "string",
  bypass_proxy_notification: "boolean",
  proxy: ["PROXY_UNSPECIFIED", "ALLOW", "DENY", "IF_PRIORITY_LOWERED"],
};
const android: Fields = {
  collapse_key: "string",
  priority: ["NORMAL", "HIGH"],
  ttl: "string",
  restricted_package_name: "string",
  data: "map",
  notification: androidNotification,
  fcm_options: analytics,
  direct_boot_ok: "boolean",
  bandwidth_constrained_ok: "boolean",
  restricted_satellite_ok: "boolean",
};
const message: Fields = {
  name: "string",
  token: "string",
  topic: "string",
  condition: "string",
  data: "map",
  notification: { title: "string", body: "string", image: "string" },
  android,
  apns: {
    headers: "map",
    payload: "struct",
    fcm_options: { ...analytics, image: "string" },
    live_activity_token: "string",
  },
  webpush: {
    headers: "map",
    data: "map",
    notification: "struct",
    fcm_options: { ...analytics, link: "string" },
  },
  fcm_options: analytics,
};
const request: Fields = { validate_only: "boolean", message };

/** The types of fields by name, in both spellings. */
const compiled = new Map<Fields, ReadonlyMap<string, Type>>();

function fieldsOf(fields: Fields): ReadonlyMap<string, Type> {
  const known = compiled.get(fields);
  if (known) return known;
  const both = Object.entries(fields).flatMap(([name, type]): [string, Type][] => [
    [name, type],
    [name.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase()), type],
  ]);
  const map = new Map(both);
  compiled.set(fields, map);
  return map;
}

/** The first wrong name or type in the JSON; undefined if there is none. */
export function typeProblem(body: unknown): FieldViolation | undefined {
  return isObject(body) ? fieldsProblem(body, request, "") : wrongType("", "object", body);
}

function fieldsProblem(value: object, fields: Fields, path: string): FieldViolation | undefined {
  const types = fieldsOf(fields);
  for (const [name, member] of Object.entries(value)) {
    const type = types.get(name);
    if (type === undefined) {
      const at = path === "" ? "" : ` at '${path}'`;
      return {
        field: path,
        description: `Invalid JSON payload received. Unknown name "${name}"${at}: Cannot find field.`,
      };
    }
    // In the JSON of Google's APIs, null means that the field is absent.
    const problem =
      member === null ? undefined : valueProblem(member, type, path === "" ? name : `${path}.${name}`);
    if (problem) return problem;
  }
  return undefined;
}

function valueProblem(value: unknown, type: Type, path: string): FieldViolation | undefined {
  if (typeof type === "string") {
    if (type === "map") return mapProblem(value, path);
    return isOf(value, type) ? undefined : wrongType(path, type, value);
  }
  if (isNames(type)) {
    const isName = typeof value === "string" && type.includes(value.toUpperCase());
    return isName ? undefined : wrongType(path, "enum", value);
  }
  return isObject(value) ? fieldsProblem(value, type, path) : wrongType(path, "message", value);
}

function isNames(type: Fields | readonly string[]): type is readonly string[] {
  return Array.isArray(type);
}

function isOf(value: unknown, type: "string" | "boolean" | "integer" | "struct" | "strings"): boolean {
  if (type === "struct") return isObject(value);
  if (type === "strings") return Array.isArray(value) && value.every((one) => typeof one === "string");
  if (type === "integer") return Number.isInteger(value);
  if (type === "boolean") return typeof value === "boolean";
  return typeof value === "string";
}

function mapProblem(value: unknown, path: string): FieldViolation | undefined {
  if (!isObject(value)) return wrongType(path, "map", value);
  let at = 0;
  for (const member of Object.values(value)) {
    if (typeof member !== "string") return wrongType(`${path}[${at}].value`, "string", member);
    at += 1;
  }
  return undefined;
}

function wrongType(field: string, type: string, value: unknown): FieldViolation {
  const shown = JSON.stringify(value)?.slice(0, 100);
  return { field, description: `Invalid value at '${field}' (TYPE_${type.toUpperCase()}), ${shown}` };
}

/**
 * The first rule of FCM that a message violates; undefined if there is none.
 * @param bodyBytes length of the request body: a small one cannot hold a large payload
 */
export function messageProblem(message: FcmMessage, bodyBytes: number): FieldViolation | undefined {
  const { token, topic, condition, data, android, webpush } = message;
  const targets = Number(!isNone(token)) + Number(!isNone(topic)) + Number(!isNone(condition));
  if (targets === 0) return { field: "message", description: "Recipient of the message is not set." };
  if (targets > 1) {
    return {
      field: "message",
      description: "Invalid value at 'message' (oneof), oneof field 'target' is already set.",
    };
  }
  return (
    tokenProblem(token ?? undefined) ??
    (data ? dataProblem(data) : undefined) ??
    (android?.ttl ? ttlProblem(android.ttl) : undefined) ??
    backgroundProblem(message) ??
    linkProblem(webpush?.fcm_options?.link ?? webpush?.fcmOptions?.link) ??
    (bodyBytes > maxPayload ? sizeProblem(message) : undefined)
  );
}

function isNone(target: string | null | undefined): boolean {
  return target === undefined || target === null || target === "";
}

function tokenProblem(token: string | undefined): FieldViolation | undefined {
  if (token === undefined || /^[\w:.-]{1,4096}$/.test(token)) return undefined;
  return {
    field: "message.token",
    description: "The registration token is not a valid FCM registration token",
  };
}

function dataProblem(data: Readonly<Record<string, string>>): FieldViolation | undefined {
  for (const key in data) {
    if (key === "from" || key === "message_type" || key.startsWith("google.") || key.startsWith("gcm.")) {
      return { field: "message.data", description: `Invalid data payload key: ${key}` };
    }
  }
  return undefined;
}

function ttlProblem(ttl: string): FieldViolation | undefined {
  const field = "message.android.ttl";
  const match = /^(-?\d{1,12})(\.\d{1,9})?s$/.exec(ttl);
  if (!match) {
    return {
      field,
      description: `Invalid value at '${field}' (type.googleapis.com/google.protobuf.Duration), Field 'ttl', Illegal duration format; duration must end with 's'`,
    };
  }
  const seconds = Number(ttl.slice(0, -1));
  if (seconds >= 0 && seconds <= maxTtlSeconds) return undefined;
  return { field, description: `Invalid TTL: it must be from 0 to ${maxTtlSeconds} seconds` };
}

/** FCM: a message of data alone has priority 5 for Apple's devices, and is rejected with the higher one. */
function backgroundProblem({ notification, apns }: FcmMessage): FieldViolation | undefined {
  const isShown = notification !== undefined || hasAlert(apns?.payload);
  if (isShown || apns?.headers?.["apns-priority"] !== "10") return undefined;
  return { field: "message.apns.headers", description: "Background messages have the priority 5." };
}

function hasAlert(payload: object = {}): boolean {
  return "aps" in payload && isObject(payload.aps) && "alert" in payload.aps;
}

/** "For all URL values, HTTPS is required." */
function linkProblem(link: string | undefined): FieldViolation | undefined {
  if (link === undefined || /^https:\/\/./i.test(link)) return undefined;
  return { field: "message.webpush.fcm_options.link", description: "The link is to be an HTTPS URL." };
}

function sizeProblem({ data, notification, android, apns }: FcmMessage): FieldViolation | undefined {
  const androidBytes =
    bytesOf(android?.data ?? data) + bytesOf(notification) + bytesOf(android?.notification);
  if (androidBytes > maxPayload) {
    return { field: "message.android", description: "Android message is too big" };
  }
  // What goes to APNs has the rest of the message in it too.
  if (!apns || jsonBytes({ alert: notification, ...data, ...apns.payload }) <= maxPayload) return undefined;
  return { field: "message.apns.payload", description: "APNs message is too big" };
}

const jsonBytes = (value: object): number => Buffer.byteLength(JSON.stringify(value));

/** Bytes of the names and values. */
function bytesOf(map: Readonly<Record<string, unknown>> | undefined): number {
  let bytes = 0;
  for (const [name, value] of Object.entries(map ?? {})) {
    const text = typeof value === "string" ? value : (JSON.stringify(value) ?? "");
    bytes += Buffer.byteLength(name) + Buffer.byteLength(text);
  }
  return bytes;
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
