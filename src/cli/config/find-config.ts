/**
 * Finds the configuration: `--config`, else the working folder, else the configuration folder of the user.
 * Not here: the confirmation of a file in the working folder (trust/trusted-source.ts).
 */
import { existsSync, realpathSync } from 'node:fs';
import path from 'node:path';
import { configFileName, configFolder } from '../../config/folders.js';
import { HostError } from '../../kernel/errors.js';

export interface ConfigLocation {
  readonly file: string;
  /** True for a file that was found in the working folder: it may be untrusted. */
  readonly isFoundInFolder: boolean;
}

export interface FindOptions {
  readonly given?: string | undefined;
  readonly env: NodeJS.ProcessEnv;
  readonly cwd: string;
  /** False for `up --stdio`, which clients start in any folder. */
  readonly searchesFolder?: boolean;
}

export function findConfig({ given, env, cwd, searchesFolder = true }: FindOptions): ConfigLocation {
  if (given !== undefined) return { file: given, isFoundInFolder: false };
  const folder = configFolder(env);
  const ofAccount = folder === undefined ? undefined : path.join(folder, configFileName);
  const ofFolder = searchesFolder ? path.join(cwd, configFileName) : undefined;
  if (ofFolder !== undefined && existsSync(ofFolder))
    return { file: ofFolder, isFoundInFolder: folder === undefined || realPath(cwd) !== realPath(folder) };
  if (ofAccount !== undefined && existsSync(ofAccount)) return { file: ofAccount, isFoundInFolder: false };
  throw noConfig(
    [ofFolder, ofAccount].filter((location) => location !== undefined),
    searchesFolder,
  );
}

/** Resolves symbolic links. The path of a missing file is only made absolute. */
export function realPath(file: string): string {
  try {
    return realpathSync(file);
  } catch {
    return path.resolve(file);
  }
}

function noConfig(files: readonly string[], searchesFolder: boolean): HostError {
  const looked = files.length === 0 ? 'HOME is not set' : `looked for ${files.join(' and ')}`;
  const unsearched = searchesFolder ? '' : '; with --stdio the working folder is not searched';
  return new HostError('invalid_spec', `no configuration found: ${looked}${unsearched}`, {
    field: '--config',
    reason: 'no_config',
    hint: `write one, such as {"mcpServers": {"memory": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"]}}}, or name a file with --config`,
  });
}
