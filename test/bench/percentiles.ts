/** Measured values, summed up. Of none, nothing is known: NaN, which meets no aim. */

/**
 * The value below which such a share of them is, between two of them in proportion.
 * @param share 0.5 is the median: the middle one, or the mean of the two middle ones
 */
export function quantile(values: readonly number[], share: number): number {
  const sorted = Float64Array.from(values).sort();
  const place = (sorted.length - 1) * share;
  const [below, above] = [sorted[Math.floor(place)] ?? Number.NaN, sorted[Math.ceil(place)] ?? Number.NaN];
  return below === above ? below : below + (above - below) * (place - Math.floor(place));
}

export const median = (values: readonly number[]): number => quantile(values, 0.5);

/** The median, and values that less than one in a hundred and in a thousand exceed. */
export function percentiles(values: readonly number[]): { p50: number; p99: number; p999: number } {
  const sorted = Float64Array.from(values).sort();
  const exceededBy = (share: number) => sorted[Math.floor(sorted.length * (1 - share))] ?? Number.NaN;
  return { p50: median(values), p99: exceededBy(0.01), p999: exceededBy(0.001) };
}
