/** A progress bar: on one line of a terminal; elsewhere a line for each tenth. */
export interface ProgressBar {
  /** @param note a few words after the bar */
  show(done: number, total: number, note?: string): void;
  /** Ends the line. */
  end(): void;
}

const width = 32;

export function progressBar(label: string, out: NodeJS.WriteStream = process.stdout): ProgressBar {
  let shown = -1;
  let isOpen = false;
  return {
    show(done, total, note = "") {
      const share = total === 0 ? 0 : Math.min(1, done / total);
      const filled = Math.round(share * width);
      const percent = `${Math.floor(share * 100)}`.padStart(3);
      const line = `${label.padEnd(22)} ${"█".repeat(filled)}${"░".repeat(width - filled)} ${percent} %  ${note}`;
      if (out.isTTY) {
        out.write(`\r${line}\x1b[K`);
        isOpen = true;
        return;
      }
      const tenth = Math.floor(share * 10);
      if (tenth === shown) return;
      shown = tenth;
      out.write(`${line.trimEnd()}\n`);
    },
    end() {
      if (isOpen) out.write("\n");
      isOpen = false;
    },
  };
}
