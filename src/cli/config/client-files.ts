/**
 * Paths of the files in which MCP clients store the servers of their user, one row for each client. The files are read, never
 * written. Checked on 2026-11-16. Files of projects are not listed, because a repository may have brought them.
 */
import path from 'node:path';

type Environment = Readonly<Record<string, string | undefined>>;

export function clientFiles(
  { HOME, XDG_CONFIG_HOME, CLAUDE_CONFIG_DIR, COPILOT_HOME }: Environment,
  platform: NodeJS.Platform = process.platform,
): readonly { readonly client: string; readonly file: string }[] {
  if (!HOME || !path.isAbsolute(HOME)) return [];
  const isMac = platform === 'darwin';
  const config = XDG_CONFIG_HOME && path.isAbsolute(XDG_CONFIG_HOME) ? XDG_CONFIG_HOME : path.join(HOME, '.config');
  const apps = isMac ? path.join(HOME, 'Library/Application Support') : config;
  const files: readonly (readonly [client: string, ...file: string[]])[] = [
    ['Claude Code', CLAUDE_CONFIG_DIR || HOME, '.claude.json'],
    ['Claude Desktop', apps, 'Claude/claude_desktop_config.json'],
    ['Cursor', HOME, '.cursor/mcp.json'],
    ['VS Code', apps, 'Code/User/mcp.json'],
    ['Copilot CLI', COPILOT_HOME || path.join(HOME, '.copilot'), 'mcp-config.json'],
    ['Windsurf', HOME, '.codeium/windsurf/mcp_config.json'],
    ['Cline', HOME, '.cline/data/settings/cline_mcp_settings.json'],
    ['Zed', HOME, '.config/zed/settings.json'],
    ['Gemini CLI', HOME, '.gemini/settings.json'],
    ['LM Studio', HOME, '.lmstudio/mcp.json'],
    ['Junie', HOME, '.junie/mcp/mcp.json'],
    ['Amazon Q', HOME, '.aws/amazonq/mcp.json'],
    ['Kiro', HOME, '.kiro/settings/mcp.json'],
    ['Warp', HOME, '.warp/.mcp.json'],
  ];
  return files.map(([client, ...parts]) => ({ client, file: path.join(...parts) }));
}
