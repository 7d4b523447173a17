import type { Cache, CacheOptions } from "./cache.ts";

/**
 * The cache of these settings, once it was tried for the first time. The client library is loaded by those only who
 * have one.
 */
export async function openCache(options: CacheOptions): Promise<Cache> {
  const { createRedisCache } = await import("./redis-cache.ts");
  return await createRedisCache(options);
}
