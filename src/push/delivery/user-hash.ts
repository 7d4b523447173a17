/**
 * A hash of a user's id, of 32 bits: small enough to keep a thousand of them in a row. Many users share a hash, so it
 * identifies nobody. FNV-1a with the finalizer of MurmurHash3.
 */
export function userHash(userId: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < userId.length; at += 1) hash = Math.imul(hash ^ userId.charCodeAt(at), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return hash ^ (hash >>> 16);
}
