/**
 * Chooses the port of a Hostler if its user chose none: the remembered port, else 8383. If that port is taken, a free one is used and
 * remembered in the data directory, because clients have the URL in their configuration.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { Gateway } from '../../gateway/gateway.js';
import { isHostError } from '../../kernel/errors.js';

export const hasPort = ({ listen }: { readonly listen?: unknown }): boolean =>
  typeof listen === 'object' && listen !== null && 'port' in listen;

const fileOf = (dataDir: string): string => path.join(dataDir, 'port');

/** The port that the last start used instead of 8383. */
export function rememberedPort(dataDir: string): number | undefined {
  try {
    const port = Number(readFileSync(fileOf(dataDir), 'utf8'));
    return Number.isInteger(port) && port > 0 && port <= 65_535 ? port : undefined;
  } catch {
    return undefined;
  }
}

/** Calls `onProblem` if the port cannot be stored; the next start may then use another port. */
export async function listenAnywhere(
  gateway: Pick<Gateway, 'listen'>,
  dataDir: string,
  portDefault: number,
  onProblem: (error: unknown) => void,
): Promise<void> {
  try {
    await gateway.listen(rememberedPort(dataDir) ?? portDefault);
  } catch (error) {
    if (!isHostError(error) || error.details.reason !== 'EADDRINUSE') throw error;
    const { port } = new URL(await gateway.listen(0));
    try {
      writeFileSync(fileOf(dataDir), `${port}\n`, { mode: 0o600 });
    } catch (failure) {
      onProblem(failure);
    }
  }
}
