import { onTestFinished } from "vitest";

const tickMs = 10;

/**
 * Measures the product's own delays on a machine that is busy with something else. Time in which this process
 * waits or computes counts; time in which it was ready to run and had no processor does not.
 * @returns the milliseconds since now that count, at each call
 */
export function stopwatch(): () => number {
  let counted = 0;
  let last = performance.now();
  let used = process.cpuUsage();
  function count(): number {
    const now = performance.now();
    const { user, system } = process.cpuUsage(used);
    const computedMs = (user + system) / 1000;
    // The timer below is due every 10 ms: a longer gap is a wait for the processor, as far as nothing was computed.
    counted += Math.min(now - last, Math.max(2 * tickMs, computedMs));
    last = now;
    used = process.cpuUsage();
    return counted;
  }
  const timer = setInterval(count, tickMs);
  onTestFinished(() => clearInterval(timer));
  return count;
}
