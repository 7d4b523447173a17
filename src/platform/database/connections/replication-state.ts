/** What a server reports about its place in a cluster. */
export interface ReplicationState {
  /** `system_identifier`, which is the same for a primary and its standbys, and for no other cluster. */
  readonly cluster: string;
  /** The timeline of the log that the server writes: each promotion begins a higher one. Undefined for a standby. */
  readonly timeline: number | undefined;
  /** The highest timeline that this standby is known to follow, reported up to minutes late; absent for a primary. */
  readonly followed?: number;
  /** Whether this standby has just received something of `followed`, so that it knows of no later one. */
  readonly isReceiving?: boolean;
}
