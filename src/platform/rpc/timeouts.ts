/** Milliseconds of the longest timeout that a call has: 24 days. Node's timers overflow soon after. */
const maxTimeoutMs = 24 * 86_400_000;

/** The units of `grpc-timeout`, in milliseconds, that can make a longer one. */
const units: NodeJS.Dict<number> = { H: 3_600_000, M: 60_000, S: 1_000 };

/** Sets the longest timeout in place of a longer one, in the header of gRPC and gRPC-Web, and in that of Connect. */
export function clampTimeout(headers: NodeJS.Dict<string | string[]>): void {
  const [, amount, unit = ""] = /^(\d{1,8})([HMS])$/.exec(String(headers["grpc-timeout"])) ?? [];
  if (Number(amount) * (units[unit] ?? 0) > maxTimeoutMs)
    headers["grpc-timeout"] = `${maxTimeoutMs / 3_600_000}H`;
  const name = "connect-timeout-ms";
  if (/^\d{10}$/.test(String(headers[name])) && Number(headers[name]) > maxTimeoutMs)
    headers[name] = `${maxTimeoutMs}`;
}
