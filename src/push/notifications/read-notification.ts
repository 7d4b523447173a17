/** Reads a notification as a caller wrote it: all that is wrong with it at once, or what is to be sent to whom. */

import { type InputError, mostErrors } from "../../platform/base/errors.ts";
import { escapePointer } from "../../platform/openapi/parameters.ts";
import type { Content, Delivery } from "../content/content.ts";
import { hasOtherBraces, isVariableName, missingVariables, variableNames } from "../content/variables.ts";
import type { Audience } from "./audience.ts";
import { readAudience, type WrittenAudience } from "./read-audience.ts";
import { type Report, readContent, type Written } from "./read-content.ts";

/** A notification as a caller wrote it. The schema of the document has been checked, but for bounds of its values. */
export interface WrittenNotification {
  readonly audience: WrittenAudience;
  readonly content: Written<Content>;
  readonly delivery?: Written<Delivery> | null | undefined;
}

/** Something that a caller may not have meant, at a place of the request. */
export type Warning = InputError;

/** A notification that is to be sent. */
export interface NotificationRequest {
  readonly audience: Audience;
  readonly content: Content;
  readonly delivery: Delivery;
}

/** Longest id of those that replace each other, in bytes: APNs takes no longer one. */
const maxCollapseBytes = 64;

interface ReadNotification {
  /** To be used only if there are no errors. */
  readonly request: NotificationRequest;
  readonly errors: readonly InputError[];
  readonly warnings: readonly Warning[];
}

/** @param now when it is accepted, in milliseconds since the epoch */
export function readNotification(
  { audience, content, delivery }: WrittenNotification,
  now: number,
): ReadNotification {
  const errors: InputError[] = [];
  const report: Report = (pointer, message) => {
    if (errors.length < mostErrors) errors.push({ pointer, message });
  };
  const request = {
    audience: readAudience(audience, now, report),
    content: readContent(content, report),
    delivery: readDelivery(delivery ?? {}, content.silent === true, report),
  };
  checkVariables(request.audience, content.texts ?? {}, report);
  const hasNoEntry = request.content.silent && delivery?.history === true;
  return { request, errors, warnings: hasNoEntry ? [silentEntry] : [] };
}

const silentEntry = {
  pointer: "/body/delivery/history",
  message: "has no effect: a silent notification has no entry in the history",
};

function readDelivery(written: Written<Delivery>, isSilent: boolean, report: Report): Delivery {
  const { priority, ttlSeconds, collapseId, maxPerSecond, history } = written;
  if (typeof collapseId === "string" && Buffer.byteLength(collapseId) > maxCollapseBytes)
    report("/body/delivery/collapseId", `is longer than ${maxCollapseBytes} bytes in UTF-8`);
  return {
    priority: priority ?? "high",
    ttlSeconds: ttlSeconds ?? undefined,
    collapseId: collapseId ?? undefined,
    maxPerSecond: maxPerSecond ?? undefined,
    history: !isSilent && (history ?? true),
  };
}

const ofName = "a letter, then up to 63 letters, digits and _";
const noName = `holds {{ that begins no name: ${ofName}, and }}, with no more than spaces beside it`;

/** Most variables of a user, and so most names in texts. */
const mostVariables = 20;

/** Each user needs a value for each name that a text holds, and a text with names needs users with values. */
function checkVariables({ personal }: Audience, texts: Content["texts"], report: Report): void {
  for (const [tag, text] of Object.entries(texts)) {
    const pointer = `/body/content/texts/${escapePointer(tag)}`;
    const [name] = variableNames([text]);
    if (hasOtherBraces(text)) report(pointer, noName);
    else if (name !== undefined && personal.length === 0)
      report(pointer, `holds {{${name}}}, for which only users in personal have values`);
  }
  if (personal.length === 0) return;
  const names = variableNames(Object.values(texts));
  if (names.size > mostVariables) {
    report("/body/content/texts", `hold more than ${mostVariables} names`);
    return;
  }
  for (const [index, { user, variables }] of personal.entries()) {
    const at = `/body/audience/personal/${index}/variables`;
    for (const name of missingVariables(names, variables))
      report(`${at}/${name}`, `is required: user ${user} has no ${name}`);
    for (const name of Object.keys(variables))
      if (!isVariableName(name)) report(`${at}/${escapePointer(name)}`, `is no name: ${ofName}`);
  }
}
