/**
 * Which arguments of an interpreter name the code it runs: its script, and modules it is told to load before. Arguments of
 * the script itself are not code, whatever they name: a server that works on files declares them.
 */
import path from 'node:path';

/** By name, without a version: `python3.12`, `node`. */
const interpreters = new Set([
  ...['node', 'nodejs', 'bun', 'deno', 'tsx', 'ts-node', 'python', 'pypy', 'uv', 'perl', 'ruby', 'php', 'lua'],
  ...['java', 'dotnet', 'Rscript', 'sh', 'bash', 'dash', 'zsh', 'ksh'],
]);

export const isInterpreter = (command: string): boolean =>
  interpreters.has(path.basename(command).replace(/[\d.]+$/, ''));

/** The argument after it is a file that is loaded. */
const loads = new Set(['-r', '--require', '--import', '--loader', '--experimental-loader', '--env-file']);
/** Code given as text, or a module by name: no script follows. */
const textFollows = new Set(['-c', '-e', '-m', '-p', '--eval', '--print', '-E']);
const argumentsMax = 64;

/** In order of appearance; each may turn out not to exist. */
export async function scriptFiles(
  command: string,
  args: readonly string[],
  isFile: (arg: string) => Promise<boolean>,
): Promise<string[]> {
  if (!isInterpreter(command)) return [];
  const found: string[] = [];
  for (let i = 0; i < Math.min(args.length, argumentsMax); i++) {
    const arg = args[i] as string;
    if (textFollows.has(arg)) return found;
    const [option = '', value] = arg.startsWith('--') ? splitOnce(arg) : [arg];
    if (loads.has(option)) {
      const file = value ?? args[++i];
      if (file !== undefined && (await isFile(file))) found.push(file);
    } else if (!arg.startsWith('-') && (await isFile(arg))) return [...found, arg];
    // A path that is not there is the script all the same; a bare word may be a subcommand, such as `run`.
    else if (!arg.startsWith('-') && arg.includes('/')) return found;
  }
  return found;
}

function splitOnce(arg: string): [string, string?] {
  const at = arg.indexOf('=');
  return at < 0 ? [arg] : [arg.slice(0, at), arg.slice(at + 1)];
}
