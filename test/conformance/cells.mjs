/**
 * The list of cells: each kind of upstream with the requirements of each revision, and the scenarios that apply to them. Not here:
 * running them (run.mjs), expected failures and their reasons (expected-failures.yml).
 */

/** The revisions for which the suite has frozen requirements, with their eras. */
export const requirements = [
  { revision: '2025-11-25', era: 'legacy' },
  { revision: '2026-07-28', era: 'modern' },
];

/** How the fixture is reached behind the gateway. */
export const upstreams = [
  { name: 'stdio-modern', kind: 'stdio', era: 'modern' },
  { name: 'stdio-legacy', kind: 'stdio', era: 'legacy' },
  { name: 'http-modern', kind: 'http', era: 'modern' },
  { name: 'http-legacy', kind: 'http', era: 'legacy' },
  { name: 'http-sse', kind: 'sse', era: 'legacy' },
];

/**
 * Whether clients share the fixture. If the transport does not show which call a question or a log line belongs to, it reaches no
 * client for 30 s after a call of another client, unless each client has its own instance. The suite opens a session for each
 * scenario, and each legacy session is a client. A modern client may leave a legacy server's question unanswered, and the call
 * waits. Over HTTP each request has a stream, and all modern requests of the suite belong to one client.
 */
export const isolationFor = (upstream, { era }) =>
  upstream.kind !== 'http' && (upstream.era === 'legacy' || era === 'legacy') ? 'per-client' : 'shared';

/** Scenarios that name no tool and no prompt. These also run at `/mcp`, where names have the server as prefix. */
export const nameless = new Set([
  'server-initialize',
  'server-stateless',
  'logging-set-level',
  'ping',
  'tools-list',
  'server-sse-multiple-streams',
  'resources-list',
  'resources-read-text',
  'resources-read-binary',
  'resources-templates-read',
  'resources-subscribe',
  'resources-unsubscribe',
  'sep-2164-resource-not-found',
  'prompts-list',
  'dns-rebinding-protection',
  'caching',
  'input-required-result-unsupported-methods',
]);

const authScenarios = [
  ...[
    'metadata-default',
    'metadata-var1',
    'metadata-var2',
    'metadata-var3',
    'basic-cimd',
    'scope-from-www-authenticate',
  ],
  ...['scope-from-scopes-supported', 'scope-omitted-when-undefined', 'scope-step-up', 'scope-retry-limit'],
  ...['token-endpoint-auth-basic', 'token-endpoint-auth-post', 'token-endpoint-auth-none', 'pre-registration'],
  ...['client-credentials-basic', 'client-credentials-jwt'],
];
const newAuthScenarios = [
  ...['resource-mismatch', 'offline-access-scope', 'offline-access-not-supported', 'authorization-server-migration'],
  ...[
    'iss-supported',
    'iss-not-advertised',
    'iss-supported-missing',
    'iss-wrong-issuer',
    'iss-unexpected',
    'iss-normalized',
  ],
  'metadata-issuer-mismatch',
];
const named = (scenarios) => scenarios.map((name) => `auth/${name}`);

/** The suite as a server, the gateway as its client. */
export const clientScenarios = {
  '2025-11-25': [
    ...['initialize', 'tools_call', 'elicitation-sep1034-client-defaults', 'sse-retry'],
    ...named(authScenarios),
  ],
  '2026-07-28': [
    'tools_call',
    'request-metadata',
    'sep-2322-client-request-state',
    'http-standard-headers',
    'http-custom-headers',
    'http-invalid-tool-headers',
    'json-schema-ref-no-deref',
    'json-schema-2020-12-preservation',
    ...named([...authScenarios, ...newAuthScenarios]),
  ],
};
