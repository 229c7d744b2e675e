/**
 * `hostler login`: logs in to one server. Browser, callback and prompts belong to this process; a running Hostler finds the grant in
 * the store.
 * Not here: the login itself (identity/login.ts).
 */
import { createInterface } from 'node:readline';
import { tokenHeaderOf } from '../config/server-spec.js';
import { parseDuration } from '../config/values.js';
import { type LoginResult, type LoginUi, login as logIn } from '../identity/login.js';
import { mayOpenBrowser, openBrowser } from '../identity/open-browser.js';
import { systemClock } from '../kernel/clock.js';
import { isHostError } from '../kernel/errors.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { type Command, jsonOption, type ParsedArgs, usageError } from './command.js';
import { openUserStore, type RemoteServer, remoteServer } from './config/identity-config.js';
import { EXIT, exitCodeOf } from './exit-codes.js';
import { printJson, printLines } from './output/print.js';

const questionCharsMax = 1_000;
const portMax = 65_535;

export const configOption = { 'config=': 'the configuration with the server' };

export const login: Command = {
  name: 'login',
  usage: 'SERVER [--no-browser] [--issuer URL] [--scopes "a b"] [--port N] [--timeout 10m] [--fresh] [--yes] [--json]',
  example: 'login docs',
  options: {
    'no-browser': 'print the URL; paste the address of the last page here',
    'issuer=': 'authorization server, if the server names several',
    'scopes=': 'scopes to ask for, separated by blanks',
    'port=': 'port of the redirect URI',
    'timeout=': 'how long to wait for the browser; 10m unless given',
    fresh: 'register a new client',
    yes: 'accept another account than before',
    ...jsonOption,
    ...configOption,
  },
  positionals: [1, 1],
  run: (args) => runLogin(args, process.env),
};

async function runLogin(args: ParsedArgs, env: NodeJS.ProcessEnv): Promise<number> {
  const port = args.text('port');
  if (port !== undefined && !(/^\d{1,5}$/.test(port) && Number(port) <= portMax))
    throw usageError(login, `--port needs a number up to ${portMax}`);
  const server = await remoteServer(args, env);
  refuseUnused(server);
  const store = await openUserStore(env, true);
  if (!store) return EXIT.failed;
  const ui = new TerminalUi(args, env, server.name);
  try {
    const result = await logIn({
      ...{
        server: server.name,
        url: server.spec.url,
        headers: await server.headers(),
        auth: await server.authWithSecrets(),
      },
      ...{ store, http: server.http, redactor: server.redactor, clock: systemClock, ui },
      issuer: args.text('issuer'),
      scopes: args
        .text('scopes')
        ?.split(/\s+/)
        .filter((scope) => scope !== ''),
      port: port === undefined ? undefined : Number(port),
      isFresh: args.has('fresh'),
      timeoutMs: parseDuration(args.text('timeout') ?? '10m', '--timeout'),
      signal: new AbortController().signal,
    });
    report(server.name, result, args.has('json'));
    return EXIT.done;
  } catch (error) {
    if (!isHostError(error)) throw error;
    // Exit code 3 is for refusals by the policy of Hostler.
    const isRefusal = exitCodeOf(error) === EXIT.refused;
    if (args.has('json')) printJson({ ok: false, error: error.toJSON() });
    if (!isRefusal && !args.has('json')) throw error;
    const message = server.redactor.redact(`hostler: ${error.message}`);
    printLines([message, ...(error.hint === undefined ? [] : [`         ${error.hint}`])], process.stderr);
    return EXIT.failed;
  } finally {
    ui.close();
  }
}

/** Refuses a login that would be stored and never used. */
function refuseUnused({ name, auth: { grant }, spec }: RemoteServer): void {
  const header = tokenHeaderOf(spec);
  if (grant === 'client_credentials')
    throw usageError(
      login,
      `'${name}' has auth.grant "client_credentials": Hostler obtains its tokens without a login`,
      `remove auth.grant for logins of people; hostler why ${name} shows the token of this client`,
    );
  if (header !== undefined)
    throw usageError(
      login,
      `'${name}' sends the token of headers.${header}, so a login would not be used`,
      `remove headers.${header}${grant === 'none' ? ' and auth.grant' : ''} from its entry`,
    );
  if (grant === 'none')
    throw usageError(login, `'${name}' has auth.grant "none", so a login would not be used`, 'remove auth.grant');
}

function report(server: string, { row, isOldest, missing }: LoginResult, isJson: boolean): void {
  const { identity } = row.facts;
  if (isJson) return printJson({ ok: true, server, identity, issuer: row.issuer, scopes: row.scopes, missing });
  const who = identity === undefined ? '' : ` as ${identity}`;
  printLines([
    `logged in to ${server}${who}, at ${row.issuer}`,
    ...(row.scopes.length === 0 ? [] : [`scopes: ${row.scopes.join(' ')}`]),
    ...(missing.length === 0 ? [] : [`not granted: ${missing.join(' ')}`]),
    ...(row.refreshToken === undefined
      ? ['the server gave no refresh token: log in again when the token expires']
      : []),
    ...(isOldest ? ['the server is its own authorization server (rules of 2025-03-26)'] : []),
    'a running Hostler uses this login within two seconds',
  ]);
}

class TerminalUi implements LoginUi {
  readonly #args: ParsedArgs;
  readonly #env: NodeJS.ProcessEnv;
  readonly #server: string;
  readonly #lines = createInterface({ input: process.stdin, terminal: false });
  #onPaste: (text: string) => void = () => {};
  #onAnswer: ((isYes: boolean) => void) | undefined;

  constructor(args: ParsedArgs, env: NodeJS.ProcessEnv, server: string) {
    this.#args = args;
    this.#env = env;
    this.#server = server;
    this.#lines.on('line', (line) => {
      const answer = this.#onAnswer;
      this.#onAnswer = undefined;
      if (answer) answer(/^\s*y(?:es)?\s*$/i.test(line));
      else if (line.trim() !== '') this.#onPaste(line);
    });
  }

  show({ url, redirectUri, port, expiresAt }: Parameters<LoginUi['show']>[0]): void {
    const isTerminal = process.stdin.isTTY === true && process.stderr.isTTY === true;
    if (this.#args.has('json')) printJson({ url, redirectUri, expiresAt: expiresAt.toISOString() });
    const opens = !this.#args.has('no-browser') && !this.#args.has('json') && mayOpenBrowser(this.#env, isTerminal);
    if (this.#args.has('json')) return;
    const lines = [
      `Open this address to log in to ${this.#server}:`,
      '',
      `  ${url}`,
      '',
      'If the browser is on another machine, paste the address of its last page here and press Enter,',
      `or forward the port first: ssh -L ${port}:127.0.0.1:${port} HOST`,
      '',
    ];
    if (!opens) return printLines(lines, process.stderr);
    void openBrowser(url).then((isOpen) =>
      printLines(
        isOpen ? [`A browser was opened to log in to ${this.#server}. If you do not see it:`, ...lines] : lines,
        process.stderr,
      ),
    );
  }

  onPaste(onText: (text: string) => void): void {
    this.#onPaste = onText;
  }

  askAgain(): void {
    printLines(['This is not the address of this login. Paste the whole address from the browser.'], process.stderr);
  }

  async confirm(question: string, about: 'account' | 'issuer'): Promise<boolean> {
    // `--yes` does not accept another authorization server, which has to be named with --issuer.
    if (this.#args.has('yes') && about === 'account') return true;
    if (process.stdin.isTTY !== true || process.stderr.isTTY !== true) return false;
    process.stderr.write(`${neutraliseLine(question, questionCharsMax)} [y/N] `);
    return new Promise((resolve) => {
      this.#onAnswer = resolve;
      this.#lines.once('close', () => resolve(false));
    });
  }

  close(): void {
    this.#lines.close();
    // An open pipe would keep the process alive.
    process.stdin.destroy();
  }
}
