/**
 * Makes the picture of the README: runs commands of the built Hostler on a pseudo terminal, with real servers, and draws their
 * output. Values that differ between runs (port, process ids, durations) are replaced by fixed text. Needs `script` of util-linux.
 */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { ensureBuild, ensureDependencies, isMain, root } from './bootstrap.mjs';

const run = promisify(execFile);
const main = path.join(root, 'dist/cli/main.js');

export const pictureFile = path.join(root, 'docs/images/terminal.svg');
const commands = ['status', 'tools memory', 'call memory.search_nodes'];
const columns = 112;
const learnMsMax = 40_000;

const entry = (name, ...args) => ({
  command: process.execPath,
  args: [path.join(root, `node_modules/@modelcontextprotocol/server-${name}/dist/index.js`), ...args],
});

const configuration = (folder) => ({
  mcpServers: {
    everything: entry('everything'),
    filesystem: entry('filesystem', folder),
    github: { url: `\${GITHUB_MCP}` },
    memory: { ...entry('memory'), env: { MEMORY_FILE_PATH: path.join(folder, 'memory.jsonl') } },
    thinking: entry('sequential-thinking'),
  },
});

/** Runs the commands. Returns each with its output lines, in colour and masked. */
export async function record() {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'hostler-picture-'));
  const env = { ...process.env, HOSTLER_DATA_DIR: path.join(folder, 'data'), XDG_DATA_HOME: folder, TERM: 'xterm' };
  for (const name of ['GITHUB_MCP', 'NO_COLOR', 'FORCE_COLOR', 'CI']) delete env[name];
  const config = path.join(folder, 'hostler.json');
  await writeFile(config, JSON.stringify(configuration(folder)));
  const up = spawn(process.execPath, [main, 'up', '--config', config, '--port=0'], { env, stdio: 'ignore' });
  const ended = once(up, 'exit');
  try {
    await learnt(env);
    await run(process.execPath, [main, 'stop', 'thinking'], { env });
    const recorded = [];
    for (const command of commands)
      recorded.push({ command: `hostler ${command}`, lines: await linesOf(command, env) });
    return recorded;
  } finally {
    up.kill('SIGTERM');
    await ended;
    await rm(folder, { recursive: true, force: true });
  }
}

async function learnt(env) {
  const endMs = performance.now() + learnMsMax;
  while (performance.now() < endMs) {
    const { stdout } = await run(process.execPath, [main, 'status', '--json'], { env }).catch(() => ({ stdout: '{}' }));
    const { servers = [] } = JSON.parse(stdout);
    if (servers.length > 0 && servers.every(({ tools, name }) => tools > 0 || name === 'github')) return;
    await sleep(100);
  }
  throw new Error('the tools of the servers of the picture were not listed');
}

async function linesOf(command, env) {
  const line = `stty cols ${columns} rows 50; '${process.execPath}' '${main}' ${command}`;
  // A command that fails is shown too.
  const { stdout } = await run('script', ['-qfc', line, '/dev/null'], { env }).catch((error) => error);
  return mask(stdout).replaceAll('\r', '').trimEnd().split('\n');
}

/** Replacements keep the width of table columns. A long note is cut. */
const mask = (text) =>
  text
    .replace(/\(pid \d+\)/g, '(pid 4711)')
    .replace(/ is not set; .*…/, ' is not set…')
    .replace(/127\.0\.0\.1:\d+/g, '127.0.0.1:8383')
    .replace(/started (?:just now|\S+ ago)/g, 'started 5s ago')
    .replace(/(FOR\S*?) +(?=\S*TOOLS)/, '$1  ')
    .replace(/(PID\S*?) +(?=\S*NOTE)/, '$1   ')
    .replace(/ \d+(?:ms|s|m(?: \d+s)?) +(?=\d+ +\d+ +(?:\d+|-))/g, ' 5s   ')
    .replace(/(?<= 5s {3}\d+ +\d+ +)(?:(\d+)|-)(?: +(?=\S))?/g, (found, pid) => {
      const shown = pid === undefined ? '-' : '4711';
      return found.endsWith(' ') ? shown.padEnd(6) : shown;
    });

const [charWidth, lineHeight, padding, titleHeight] = [8.4, 19, 18, 34];
const colours = { 1: '#f0f6fc', 2: '#8b949e', 31: '#ff7b72', 32: '#3fb950', 33: '#d29922', 36: '#39c5cf' };
const ends = ['0', '22', '39'];

/** Draws recorded commands. */
export function svgOf(recorded) {
  const lines = recorded.flatMap(({ command, lines: printed }) => [
    `\u001b[32m$\u001b[39m \u001b[1m${command}\u001b[22m`,
    ...printed,
    '',
  ]);
  lines.pop();
  const width = Math.ceil(columns * charWidth + 2 * padding);
  const height = titleHeight + lines.length * lineHeight + padding;
  const dots = ['#ff5f56', '#ffbd2e', '#27c93f'].map(
    (fill, i) => `<circle cx="${padding + i * 20}" cy="17" r="6" fill="${fill}"/>`,
  );
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img">`,
    `<title>Terminal: ${escaped(recorded.map(({ command }) => command).join(', '))}</title>`,
    '<style>text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#c9d1d9;white-space:pre}</style>',
    `<rect width="${width}" height="${height}" rx="8" fill="#0d1117"/>`,
    ...dots,
    ...lines.map(
      (line, i) => `<text y="${titleHeight + (i + 1) * lineHeight - 5}" xml:space="preserve">${spansOf(line)}</text>`,
    ),
    '</svg>',
    '',
  ].join('\n');
}

/** Each span has its place and width, so that columns are aligned in any font. */
function spansOf(line) {
  let [column, code] = [0, undefined];
  return line
    .split(/\u001b\[(\d*)m/)
    .map((part, i) => {
      if (i % 2 === 1) {
        code = ends.includes(part || '0') ? undefined : part;
        return '';
      }
      if (part === '') return '';
      const [at, length] = [column, [...part].length];
      column += length;
      const fill = code === undefined ? '' : ` fill="${colours[code]}"`;
      const weight = code === '1' ? ' font-weight="bold"' : '';
      const place = `x="${(padding + at * charWidth).toFixed(1)}" textLength="${(length * charWidth).toFixed(1)}"`;
      return `<tspan ${place}${fill}${weight}>${escaped(part)}</tspan>`;
    })
    .join('');
}

const escaped = (text) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');

if (isMain(import.meta.url)) {
  await ensureDependencies();
  await ensureBuild();
  await mkdir(path.dirname(pictureFile), { recursive: true });
  await writeFile(pictureFile, svgOf(await record()));
}
