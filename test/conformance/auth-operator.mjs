/**
 * The operator and the browser of the authorization scenarios: writes the `auth` entry that a scenario needs, runs `hostler login`,
 * and opens the printed address as a browser would.
 * Not here: the calls that show whether a login is needed (driver.mjs).
 */
import { spawn } from 'node:child_process';
import process from 'node:process';
import { createInterface } from 'node:readline';

const clientMetadataUrl = 'https://conformance-test.local/client-metadata.json';
const loginMsMax = 20_000;

export const isAuthScenario = (scenario) => scenario.startsWith('auth/');

/** Reads the issuer from the metadata of the server, as an operator would. */
export async function issuerOf(url) {
  const { origin, pathname } = new URL(url);
  const places = [
    `${origin}/.well-known/oauth-protected-resource${pathname}`,
    `${origin}/.well-known/oauth-protected-resource`,
  ];
  for (const place of places) {
    const response = await fetch(place);
    if (response.ok) return (await response.json()).authorization_servers?.[0];
  }
  return undefined;
}

/** Builds the `auth` entry from the values that the scenario gives to an operator. */
export async function authEntry(scenario, url, context) {
  if (scenario === 'auth/basic-cimd') return { clientMetadataUrl };
  const { client_id: clientId, client_secret: clientSecret, private_key_pem: pem, signing_algorithm: alg } = context;
  if (clientId === undefined) return {};
  const issuer = context.issuer ?? (await issuerOf(url));
  const grant = scenario.startsWith('auth/client-credentials') ? { grant: 'client_credentials' } : {};
  if (pem !== undefined) return { ...grant, issuer, clientId, clientKey: { pem, alg } };
  return { ...grant, issuer, clientId, clientSecret };
}

/** Runs `hostler login`; resolves with its exit code and what it printed. */
export function logIn({ file, config, env, issuer, log }) {
  const options = ['--json', '--config', config, ...(issuer === undefined ? [] : ['--issuer', issuer])];
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [file, 'login', 'mock', ...options], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env,
    });
    const timer = setTimeout(() => child.kill('SIGKILL'), loginMsMax);
    let said = '';
    let isOpened = false;
    child.stderr.setEncoding('utf8').on('data', (chunk) => {
      said += chunk;
      log?.(chunk);
    });
    createInterface({ input: child.stdout }).on('line', (line) => {
      said += `${line}\n`;
      log?.(`${line}\n`);
      const url = /"url":\s*"((?:[^"\\]|\\.)*)"/.exec(line)?.[1];
      if (url === undefined || isOpened) return;
      isOpened = true;
      // The login reports errors at the callback, so a failure of the browser shows there.
      browse(JSON.parse(`"${url}"`)).catch((error) => log?.(`browser: ${error.message}\n`));
    });
    child.once('error', reject);
    child.once('close', (code) => {
      clearTimeout(timer);
      resolve({ code, said });
    });
  });
}

/** Follows the redirect of the authorization server to the callback. */
async function browse(url) {
  const { headers } = await fetch(url, { redirect: 'manual' });
  const location = headers.get('location');
  if (location === null) throw new Error(`${url} did not redirect`);
  await fetch(new URL(location, url), { redirect: 'manual' });
}
