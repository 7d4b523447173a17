/** Makes and rotates the key that signs access tokens: `npm run keys -- new|use-next|retire|show <folder>`. */
import { statSync } from "node:fs";
import { join } from "node:path";
import {
  type KeyFolder,
  KeyFolderError,
  keyFiles,
  makeKey,
  readKeyFolder,
  retireKeys,
  useNextKey,
} from "./auth/keys/key-folder.ts";
import { readArguments, refuseArguments } from "./command.ts";

const usage = `npm run keys -- <command> <folder>

Makes and rotates the key that signs access tokens: docs/operate/keys.md.

  new       makes the first key, or else the next one, and publishes that
  use-next  signs with the next key, and keeps the old one published
  retire    stops publishing every key that is neither in use nor next
  show      lists the keys

Exit codes: 0 done; 1 the folder is not as the command needs it; 2 unknown arguments.`;

const nextStep = {
  signing: "Start the processes of auth with the settings below.",
  next: "Restart the processes of auth, one after the other. Ten minutes later every resource server has the new key: use-next.",
  used: "Restart the processes of auth. When the last access token of the old key has expired: retire.",
} as const;

/** Milliseconds that an access token lives, unless its client has another `accessTokenSeconds`. */
const usualLifeMs = 900_000;

/** Which tokens end with the keys, and until when some may be alive. */
async function retire(folder: string): Promise<string> {
  const { previous } = await readKeyFolder(folder);
  await retireKeys(folder);
  if (previous.length === 0) return "There is no key to retire.";
  const { mtimeMs: usedAt } = statSync(join(folder, keyFiles.RSA_PRIVATE_KEY_FILE));
  return `No longer published: ${previous.join(", ")}.
Access tokens that it has signed end when the processes of auth are restarted: introspection then says that they are
inactive, and APIs that verify them by the key set respond 401 within five minutes. Apps refresh; refresh tokens go on.
The last of them expire ${usualLifeMs / 1000} seconds after the last process was restarted since use-next, not before
${new Date(usedAt + usualLifeMs).toISOString()}; later if a client has a longer accessTokenSeconds.
Restart the processes after that, or at once if the key is known to others.`;
}

const commands: Readonly<Record<string, (folder: string) => Promise<string>>> = {
  new: async (folder) => nextStep[await makeKey(folder)],
  "use-next": async (folder) => {
    await useNextKey(folder);
    return nextStep.used;
  },
  retire,
  show: async () => "",
};

function described(folder: string, { signing, next, previous }: KeyFolder): string {
  const lines = [
    `signs:      ${signing ?? "none"}`,
    `next:       ${next ?? "none"}`,
    `previous:   ${previous.join(", ") || "none"}`,
    "",
    ...Object.entries(keyFiles).map(([name, file]) => `${name}=${join(folder, file)}`),
  ];
  return lines.map((line) => `  ${line}`.trimEnd()).join("\n");
}

const { positionals } = readArguments({ usage, options: {}, operands: [2, 2] });
const [name = "", folder = ""] = positionals;
const command = Object.hasOwn(commands, name) ? commands[name] : undefined;
if (command === undefined) refuseArguments(`Unknown command '${name}'.`);
try {
  const text = await command(folder);
  process.stdout.write(
    `${text === "" ? "" : `${text}\n\n`}${described(folder, await readKeyFolder(folder))}\n`,
  );
} catch (error) {
  if (!(error instanceof KeyFolderError)) throw error;
  process.stderr.write(`${error.message}\n`);
  process.exitCode = 1;
}
