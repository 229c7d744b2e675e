/**
 * Agents from npm, which call tools through a model (fake-model.mjs). Two of them are native programs in a package for each system,
 * which needs no install script.
 * Not here: the servers, and clients that are libraries (run.mjs).
 */
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { promisify } from 'node:util';
import { openModel } from './fake-model.mjs';
import { folderOf } from './install.mjs';

const limitMs = 100_000;
const run = promisify(execFile);
const task = 'Call the tool.';
const fileOf = (name, file) => path.join(folderOf(name), 'node_modules', name, file);

/** `url`: of Hostler. `model`: of the model. `home`: an empty folder. Each resolves when the agent has ended. */
const agents = {
  '@continuedev/cli': ({ url, model, home, start }) => {
    const config = path.join(home, 'config.yaml');
    const provider = { provider: 'openai', model: 'gpt-4', apiBase: `${model}/v1`, apiKey: 'none' };
    // JSON is YAML too.
    const text = JSON.stringify({
      ...{ name: 'lane', version: '1.0.0', schema: 'v1' },
      models: [{ name: 'model', ...provider, roles: ['chat'] }],
      mcpServers: [{ name: 'hostler', type: 'streamable-http', url }],
    });
    writeFileSync(config, text);
    mkdirSync(path.join(home, '.continue'));
    const program = fileOf('@continuedev/cli', 'dist/cn.js');
    const env = { FORCE_NO_TTY: 'true', CONTINUE_TELEMETRY_ENABLED: '0' };
    return start(process.execPath, [program, '-p', task, '--config', config, '--auto'], env);
  },
  'opencode-linux-x64': ({ url, model, start }) => {
    const options = { baseURL: `${model}/v1`, apiKey: 'none' };
    const limit = { context: 1_000_000, output: 10_000 };
    const config = JSON.stringify({
      ...{ model: 'lane/model', small_model: 'lane/model', autoupdate: false, share: 'disabled' },
      provider: { lane: { npm: '@ai-sdk/openai-compatible', options, models: { model: { tool_call: true, limit } } } },
      mcp: { hostler: { type: 'remote', url, enabled: true, oauth: false } },
    });
    const env = {
      OPENCODE_CONFIG_CONTENT: config,
      OPENCODE_DISABLE_MODELS_FETCH: '1',
      OPENCODE_DISABLE_AUTOUPDATE: '1',
    };
    return start(fileOf('opencode-linux-x64', 'bin/opencode'), ['run', '--model', 'lane/model', task], env);
  },
  '@anthropic-ai/claude-code-linux-x64': ({ url, model, home, start }) => {
    const config = path.join(home, 'mcp.json');
    writeFileSync(config, JSON.stringify({ mcpServers: { hostler: { type: 'http', url } } }));
    const env = {
      ...{
        ANTHROPIC_BASE_URL: model,
        ANTHROPIC_API_KEY: 'none',
        ENABLE_TOOL_SEARCH: 'false',
        DISABLE_AUTOUPDATER: '1',
      },
      ...{ CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1', DISABLE_TELEMETRY: '1', DISABLE_ERROR_REPORTING: '1' },
    };
    const allowed = ['--allowedTools', 'mcp__hostler__no-schema__good'];
    const args = ['-p', task, '--mcp-config', config, '--strict-mcp-config', ...allowed];
    return start(fileOf('@anthropic-ai/claude-code-linux-x64', 'claude'), args, env);
  },
};

async function outcomeOf(agent, url, home, tool, listed) {
  const { url: model, seen, close } = await openModel(tool);
  const start = (command, args, env) => {
    const own = { PATH: process.env.PATH, HOME: home, TERM: 'dumb', ...env };
    const running = run(command, args, { cwd: home, env: own, timeout: limitMs, killSignal: 'SIGKILL' });
    running.child.stdin.end();
    return running;
  };
  try {
    await agent({ url, model, home, start });
  } catch (error) {
    if (seen.answer === undefined) throw error;
  } finally {
    close();
  }
  const known = listed.filter((name) => seen.names.some((shown) => shown.endsWith(name)));
  return [known.length, seen.answer?.includes('good') ? 1 : 0];
}

/** By package, like the clients of run.mjs: the number of listed tools, and of answers. `listed`: the names that Hostler lists. */
export const agentClients = (folder, tool, namesAt) =>
  Object.fromEntries(
    Object.entries(agents).map(([name, agent]) => {
      const list = async (url) =>
        outcomeOf(agent, url, mkdtempSync(path.join(folder, 'agent-')), tool, await namesAt(url));
      return [name, list];
    }),
  );
