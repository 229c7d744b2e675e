/**
 * The client of the official SDK is the oracle: at the same hostile server, this client and Hostler's login read the same documents and
 * choose the same client id, scopes and resource. A difference must be listed in login-cases.ts with its reason.
 * `UPDATE=1` writes docs/reports/login-oracle.md.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import type { Hostile } from '../fixtures/identity/hostile.js';
import { clientMetadataUrl, givenClient, type LoginCase, loginCases, startCase } from './login-cases.js';
import { LoginRig } from './login-rig.js';
import { type Observed, observe, sdkConnects } from './observed-login.js';

const report = fileURLToPath(new URL('../../docs/reports/login-oracle.md', import.meta.url));

const ofSdk = {
  'metadata document': { clientMetadataUrl },
  client: { client: { client_id: givenClient.client_id } },
  secret: { client: givenClient },
};

const { client_id: clientId, client_secret: clientSecret } = givenClient;
const ofHostler = ({ issuer }: Hostile['as']) => ({
  'metadata document': { clientMetadataUrl },
  client: { issuer, clientId },
  secret: { issuer, clientId, clientSecret },
});

/** A user who has never logged in before. */
async function hostlerLogsIn({ as, rs }: Hostile, { given }: LoginCase): Promise<string> {
  const rig = new LoginRig();
  try {
    return (await rig.reason({ url: rs.url, auth: given ? ofHostler(as)[given] : {} })) ?? 'granted';
  } finally {
    rig.end();
  }
}

async function both(each: LoginCase): Promise<{ sdk: Observed; hostler: Observed; said: string }> {
  const [one, two] = [await startCase(each), await startCase(each)];
  try {
    const [said] = await Promise.all([hostlerLogsIn(two, each), sdkConnects(one, each.given ? ofSdk[each.given] : {})]);
    return { sdk: observe(one), hostler: observe(two), said };
  } finally {
    await Promise.all([one.close(), two.close()]);
  }
}

const rows: string[] = [];

test.each(loginCases)('$name: the SDK client and Hostler choose the same', async (each) => {
  const { sdk, hostler, said } = await both(each);
  const names = Object.keys(sdk) as Array<keyof Observed>;
  const differences = names.filter((name) => sdk[name] !== hostler[name]);
  const shown = differences.map((name) => `${name}: ${sdk[name]} / ${hostler[name]}`).join(', ');
  const { outcome, metadata, client, scope, authentication } = hostler;
  const cells = [each.name, outcome, metadata, client, scope, authentication];
  rows.push(`| ${[...cells, shown === '' ? 'none' : `${shown}: ${each.reason}`].join(' | ')} |`);
  expect([shown, each.reason !== undefined], said).toEqual([shown, shown !== '']);
});

test('docs/reports/login-oracle.md has the table', () => {
  const head = ['case', 'outcome', 'metadata', 'client', 'scope', 'authentication', 'difference (SDK / Hostler)'];
  const table = [`| ${head.join(' | ')} |`, `|${' --- |'.repeat(head.length)}`, ...rows].join('\n');
  const text = `# Logins: Hostler and the official client

Written by \`UPDATE=1 npx vitest run test/identity/oracle.test.ts\`. The official SDK's client (2.4.0) and Hostler's login meet the same
hostile server in ${loginCases.length} cases. The columns show what the server saw of Hostler; the last column says where the SDK's client chose otherwise,
and why.

${table}

The column \`metadata\` says where the metadata of the issuer was found. \`as-inserted\`: at \`/.well-known/oauth-authorization-server\`, with the
path of the issuer after it. \`oidc-inserted\`: at \`/.well-known/openid-configuration\`, with the path of the issuer after it. \`oidc-appended\`:
at the path of the issuer, with \`/.well-known/openid-configuration\` after it.
`;
  if (process.env.UPDATE) writeFileSync(report, text);
  const plain = (written: string) => written.replace(/[ -]+/g, ' ');
  expect(plain(readFileSync(report, 'utf8'))).toBe(plain(text));
});
