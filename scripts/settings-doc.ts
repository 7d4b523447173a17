/**
 * The settings page of the documentation, made from the settings tables.
 */
import { authTable } from "../src/auth/settings-table.ts";
import { cacheTable } from "../src/platform/cache/cache-settings.ts";
import { databaseTable, migrationTable } from "../src/platform/database/settings.ts";
import { brokerTable } from "../src/platform/messaging/broker-settings.ts";
import { tracingTable } from "../src/platform/observability/tracing-settings.ts";
import { expectationOf } from "../src/platform/settings/kinds.ts";
import { environmentTable, serverTable } from "../src/platform/settings/server.ts";
import type { Setting, SettingsTable } from "../src/platform/settings/settings.ts";
import { providerTable } from "../src/push/provider-settings.ts";
import { pushTable } from "../src/push/settings-table.ts";
import { servicesTable } from "../src/services.ts";

interface SettingGroup {
  readonly title: string;
  readonly tables: readonly SettingsTable[];
}

/** All tables of settings, in the order of the page. The last two groups are of a service each. */
export const settingGroups: readonly SettingGroup[] = [
  { title: "Server", tables: [environmentTable, servicesTable, serverTable] },
  { title: "Database", tables: [databaseTable, migrationTable] },
  { title: "Broker", tables: [brokerTable] },
  { title: "Cache", tables: [cacheTable] },
  { title: "Traces", tables: [tracingTable] },
  { title: "Auth", tables: [authTable] },
  { title: "Push", tables: [pushTable, providerTable] },
];

/** Every setting, in Markdown: a heading of level 3 and a table for each group. */
export function settingsTable(): string {
  return settingGroups
    .map(({ title, tables }) => `### ${title}\n\n${rowsOf(tables).join("\n")}\n`)
    .join("\n");
}

function rowsOf(tables: readonly SettingsTable[]): readonly string[] {
  const rows = tables.flatMap((table) => Object.entries(table)).map(([name, row]) => rowOf(name, row));
  return [
    "| Setting | Meaning | Default in development | Required in production |",
    "|---|---|---|---|",
    ...rows,
  ];
}

function rowOf(name: string, row: Setting<unknown>): string {
  const { description, kind, secret } = row;
  const meaning = `${description} ${sentence(expectationOf(kind))}${secret ? " Secret." : ""}`;
  const cells = [`\`${name}\``, meaning, code(row.default ?? row.development), requirement(row)];
  return `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
}

/** The last column: whether production requires the setting, or its default there if that differs from development's. */
function requirement({ required, default: always, production }: Setting<unknown>): string {
  if (required === true) return "yes";
  if (required !== undefined) return `by \`npm run ${required}\``;
  return always === undefined && production !== undefined ? `no, ${code(production)}` : "no";
}

function sentence(words: string): string {
  return `${words.charAt(0).toUpperCase()}${words.slice(1)}.`;
}

function code(text: string | undefined): string {
  return text === undefined ? "none" : `\`${text}\``;
}
