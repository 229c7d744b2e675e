/**
 * Opens the authorization URL in the browser of the person who logs in.
 * Invariants: no shell, one argument, and it is an https URL (http on loopback) in the spelling of the URL parser. So neither
 * an option nor a command can come from an authorization server.
 */
import { spawn } from 'node:child_process';
import { isSecure } from '../config/values.js';
import { refusal } from './identity-errors.js';

const urlCharsMax = 8 * 1024;

/** Returns the URL as the parser writes it. Throws if it must be neither opened nor shown. */
export function checkedBrowserUrl(server: string, text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const isPlain = url?.username === '' && url.password === '' && /^[\x21-\x7e]+$/.test(url.href);
  if (url && isSecure(url) && isPlain && !/[\x00-\x20\x7f]/.test(text) && url.href.length <= urlCharsMax)
    return url.href;
  const hint = 'tell the operator of the server; nothing was opened';
  throw refusal(server, 'metadata_invalid', 'the address of its login page is not a usable https URL', hint);
}

type Environment = Readonly<Record<string, string | undefined>>;

/** Over SSH the browser would open on the wrong machine. */
export function mayOpenBrowser(env: Environment, isTerminal: boolean, platform = process.platform): boolean {
  if (!isTerminal || env.SSH_CONNECTION || env.SSH_TTY) return false;
  return platform === 'darwin' || platform === 'win32' || Boolean(env.DISPLAY || env.WAYLAND_DISPLAY);
}

export function browserCommand(url: string, platform = process.platform): readonly [string, readonly string[]] {
  if (platform === 'darwin') return ['open', [url]];
  if (platform === 'win32') return ['rundll32', ['url.dll,FileProtocolHandler', url]];
  return ['xdg-open', [url]];
}

/** Resolves with false if no browser could be started. */
export function openBrowser(url: string): Promise<boolean> {
  const [file, args] = browserCommand(url);
  return new Promise((resolve) => {
    const child = spawn(file, args, { stdio: 'ignore', detached: true, shell: false });
    child.once('error', () => resolve(false));
    child.once('spawn', () => {
      child.unref();
      resolve(true);
    });
  });
}
