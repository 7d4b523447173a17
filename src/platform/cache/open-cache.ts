import type { Cache, CacheOptions } from "./cache.ts";

/** The cache of these settings, once it was tried. The client library is loaded here alone. */
export async function openCache(options: CacheOptions): Promise<Cache> {
  const { createRedisCache } = await import("./redis-cache.ts");
  return await createRedisCache(options);
}
