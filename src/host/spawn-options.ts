/**
 * What an embedder may say about a server it spawns, in the words of a configuration entry.
 */
/** Beside how the server is reached. */
export interface SpawnOptions {
  /** False when absent: a spawned server is started at once. */
  readonly lazy?: boolean;
  readonly keepAliveMs?: number;
  /** URL or path of its server card. */
  readonly card?: string;
  readonly circuitThreshold?: number;
  readonly circuitResetMs?: number;
  readonly maxRestarts?: number;
  readonly restartWindowMs?: number;
  readonly replace?: boolean;
}

/** Options of `spawn` as the keys of a configuration entry. */
export function treatmentOf(options: SpawnOptions): Record<string, unknown> {
  const { lazy, keepAliveMs, card, circuitThreshold, circuitResetMs, maxRestarts, restartWindowMs } = options;
  const given = (entries: Record<string, unknown>) =>
    Object.fromEntries(Object.entries(entries).filter(([, value]) => value !== undefined));
  const breaker = given({ threshold: circuitThreshold, reset: circuitResetMs });
  const restart = given({ max: maxRestarts, window: restartWindowMs });
  return {
    ...given({ lazy, keepAlive: keepAliveMs, card }),
    ...(Object.keys(breaker).length > 0 ? { breaker } : {}),
    ...(Object.keys(restart).length > 0 ? { restart } : {}),
  };
}
