/**
 * What editors show for each key of `hostler.json`. json-schema.ts puts these sentences into hostler.schema.json.
 * Not here: types, limits and defaults, which the schema takes from the definitions in src/config/.
 * Invariant: no file of src/ has a description of a key, because the definitions are loaded at each start of Hostler.
 */
// biome-ignore-all lint/suspicious/noTemplateCurlyInString: placeholders of the configuration look like those of templates.
import { descriptiveKeys, unusedKeys } from '../../src/config/client-keys.js';

const withUnit = (text: string): string => `${text} A number is in milliseconds; a text has a unit, as in "30s".`;

/** The keys of `members` below `parent`, which is described itself at the key `''`. */
const below = (parent: string, members: Readonly<Record<string, string>>): Record<string, string> =>
  Object.fromEntries(
    Object.entries(members).map(([key, text]) => [key === '' ? parent : `${parent}.${key}`, text] as const),
  );

const topLevel: Readonly<Record<string, string>> = {
  $schema: 'The path or URL of this JSON Schema. Editors use it to complete and check the file; Hostler ignores it.',
  mcpServers: 'The MCP servers, by name.',
  unlistedRole:
    'Whether a principal may use the servers if it has no role, or a role that is not in `roles`. With `roles` the default is `deny`.',
  groups: 'Named subsets of the servers. Clients reach a group at `/mcp/@<name>`.',
  'groups.*': 'The servers of this group, by name.',
  idleExit: withUnit(
    'A host that was started by `hostler up --stdio` ends after this time without a client. Default: 30 s; with 0 it runs until `hostler down`.',
  ),
};

/** Keys of an entry in `mcpServers`. */
const server: Readonly<Record<string, string>> = {
  '': 'One server. Write `command` for a local program, or `url` for a remote server.',

  command: 'The program of a local server. A list is the program and its first arguments.',
  args: 'The arguments of the program. Every local user can read them, so write secrets into `env` instead.',
  env: 'Environment variables that the server gets in addition to `PATH`, `HOME` and the other basic variables.',
  'env.*': 'The value of this variable. `null` removes a variable that the server would get otherwise.',
  envFile:
    'A file with further environment variables, one `NAME=value` in each line. Variables in `env` override them.',
  cwd: 'The working folder of the server. Default: the working folder of Hostler.',
  sandbox:
    '`group` runs the server in a process group of its own. `standard` also runs it inside bubblewrap, where it sees only the files it needs (Linux only).',
  readablePaths:
    'Files and folders that the server may read in the sandbox, in addition to the system, its program and `cwd`. Relative paths start at `cwd`.',
  writablePaths: 'Files and folders that the server may read and write in the sandbox. Relative paths start at `cwd`.',

  url: 'The address of a remote server: http or https, without a user name or password.',
  headers: 'HTTP headers that Hostler sends with every request to the server.',
  'headers.*': 'The value of this header. `${env:NAME}` or `${file:PATH}` keeps a secret out of the configuration.',
  transport: 'The HTTP transport of the server. `auto` detects it; the other values skip the detection.',

  label: 'The display name of the server. Default: the name of the entry in this file.',
  enabled: 'If false, the server is listed, but Hostler never starts it.',
  lazy: 'If true, the server starts when it is first needed. If false, it starts together with Hostler. Default: true.',
  keepAlive: withUnit('The server stops after this time without use. 0: it never stops for this reason.'),
  restart: 'How often Hostler restarts a server that fails, and what it does after that.',
  'restart.max':
    'The number of restarts that are allowed within `window`, or in a row without a proven run between them (a run that lasted long enough). The next failure parks or ejects the server.',
  'restart.window': withUnit('The period in which Hostler counts restarts.'),
  'restart.onExhausted':
    'What happens after too many failures. `park`: Hostler tries again, less and less often. `eject`: the server waits for `hostler reload` or `hostler start`.',
  breaker: 'The circuit breaker, which refuses calls for a while after repeated failures.',
  'breaker.threshold':
    'The number of failures in a row after which the breaker opens. An error result of a tool is not a failure.',
  'breaker.reset': withUnit(
    'How long the breaker stays open before it lets trial calls through. Each failed trial doubles this time, up to 5 minutes.',
  ),
  timeouts: 'The time limits of starts and calls.',
  'timeouts.start': withUnit(
    'The time limit of a start. Default: 30 s, or 120 s for the first start of a package runner such as `npx`.',
  ),
  'timeouts.call': withUnit(
    'How long a call may take without an answer or progress. A deadline that the caller sets has priority.',
  ),
  concurrency: 'The number of calls that may run at the same time.',
  queueLength:
    'The number of calls that may wait for one of the `concurrency` slots. Hostler refuses further calls as `overloaded`; with 0 no call waits.',
  cache: '`on` caches the answers that the server allows to be cached. `off` caches none.',
  pins: 'What Hostler does about new and changed tools. By default it reports new tools, and blocks changed tools unless only their wording changed.',
  trustAnnotations:
    'If true, Hostler believes the server when it calls a tool read-only or idempotent, and may then send a call again after a failure.',
  card: 'The URL or path of the server card, which describes the tools before the server has ever run.',
  isolation:
    '`shared`: all clients use one instance of the server. `per-client`: each client of the gateway gets its own instance.',
  repair:
    'If true, Hostler repairs list items that clients would refuse, and leaves out those that it cannot repair. If false, it relays lists as the server sends them.',
  tools: 'The tools that are offered, and their names.',
  'tools.allow':
    'The only tools that are listed and can be called. A `*` at the end of a name matches any rest. Default: all tools.',
  'tools.deny':
    'Tools that are neither listed nor callable, even if `allow` names them. A `*` at the end matches any rest.',
  'tools.rename': 'New names of tools: the name that the server uses, then the name that clients see.',
  'tools.rename.*': 'The name that clients see.',
};

const auth: Readonly<Record<string, string>> = {
  '': 'How Hostler gets OAuth tokens for this server. Many servers need none of these keys: `hostler login` is enough.',
  grant:
    '`code`: a person logs in with `hostler login`. `client_credentials`: Hostler uses its own client secret or key. `none`: Hostler never uses OAuth.',
  account: 'A name for the account, if you use one service with several accounts. Each account has its own login.',
  issuer:
    'The address of the authorization server. It is required with a client secret or key, and for an authorization server on a private address.',
  clientId: 'The id of a client that you created at the authorization server.',
  clientSecret: 'The secret of that client. Write a reference such as `${file:PATH}` instead of the secret itself.',
  clientKey: 'The private key of the client. It replaces `clientSecret`.',
  'clientKey.pem':
    'The private key in PEM format (PKCS #8). Write a reference such as `${file:PATH}` instead of the key.',
  'clientKey.alg': 'The signature algorithm of the key.',
  'clientKey.kid': 'The id of the key at the authorization server.',
  clientMetadataUrl:
    'The URL of a client id metadata document. Hostler uses it as client id if the authorization server supports this.',
  scopes: 'The scopes that a login asks for. Default: the scopes that the server names.',
  scopesMax:
    'The only scopes that a login may ask for. If `offline_access` is not among them, some servers give no refresh token. Default: no limit.',
  resource:
    'The value of the OAuth parameter `resource`; `false` leaves the parameter out. Default: the resource that the server names, else the URL of the server without the query.',
  authorizeParams: 'Further parameters of the login page, such as `audience`.',
  'authorizeParams.*': 'The value of this parameter.',
  tokenParams: 'Further parameters of token requests.',
  'tokenParams.*': 'The value of this parameter.',
  redirect: 'The redirect URI of a login. Set it if the authorization server accepts only a fixed one.',
  'redirect.host': 'The host of the redirect URI.',
  'redirect.port': 'The port of the redirect URI. 0: any free port.',
  'redirect.path': 'The path of the redirect URI.',
  pkce: '`required`: the authorization server must say that it supports PKCE. `assume`: it supports PKCE without saying so; this needs `issuer`.',
};

/** Keys of other MCP clients that Hostler reads; src/config/client-keys.ts says how. */
const clientKeys: Readonly<Record<string, string>> = {
  type: 'A key of other MCP clients: the transport. `stdio` and `http` have no effect, because `command` or `url` decides.',
  transportType: 'A key of other MCP clients: the transport. It works like `type`.',
  cmd: 'A key of other MCP clients with the meaning of `command`.',
  serverUrl: 'A key of other MCP clients with the meaning of `url`.',
  httpUrl: 'A key of other MCP clients with the meaning of `url`.',
  uri: 'A key of other MCP clients with the meaning of `url`.',
  http_headers: 'A key of other MCP clients with the meaning of `headers`.',
  env_http_headers:
    'A key of other MCP clients: `headers` whose values are read from the variables that are named here.',
  bearer_token_env_var: 'A key of other MCP clients: the name of a variable that contains the bearer token.',
  environment: 'A key of other MCP clients with the meaning of `env`.',
  envs: 'A key of other MCP clients with the meaning of `env`.',
  env_vars: 'A key of other MCP clients: the names of variables that the server gets from the environment of Hostler.',
  env_keys: 'A key of other MCP clients: the names of variables that the server gets from the environment of Hostler.',
  working_directory: 'A key of other MCP clients with the meaning of `cwd`.',
  workingDirectory: 'A key of other MCP clients with the meaning of `cwd`.',
  disabled: 'A key of other MCP clients with the opposite meaning of `enabled`.',
  isActive: 'A key of other MCP clients with the meaning of `enabled`.',
  timeout:
    'A key of other MCP clients with the meaning of `timeouts.call`. A number below 1,000 is in seconds, any other in milliseconds.',
  tool_timeout_sec: 'A key of other MCP clients with the meaning of `timeouts.call`, in seconds.',
  startup_timeout_sec: 'A key of other MCP clients with the meaning of `timeouts.start`, in seconds.',
  startup_timeout_ms: 'A key of other MCP clients with the meaning of `timeouts.start`, in milliseconds.',
  includeTools: 'A key of other MCP clients with the meaning of `tools.allow`.',
  enabledTools: 'A key of other MCP clients with the meaning of `tools.allow`.',
  enabled_tools: 'A key of other MCP clients with the meaning of `tools.allow`.',
  disabledTools: 'A key of other MCP clients with the meaning of `tools.deny`.',
  excludeTools: 'A key of other MCP clients with the meaning of `tools.deny`.',
  disabled_tools: 'A key of other MCP clients with the meaning of `tools.deny`.',
  ...Object.fromEntries(
    [...unusedKeys].map((key) => [
      key,
      'A key of other MCP clients. It has no effect in Hostler, which reports it once.',
    ]),
  ),
  ...Object.fromEntries(
    [...descriptiveKeys].map((key) => [key, 'A note for people or for other programs. Hostler ignores it.']),
  ),
};

const access: Readonly<Record<string, string>> = {
  ...below('roles', {
    '': 'What each role may use, by the name of the role. A key in `keys` names the role of its holder.',
    '*': 'The rights of this role.',
    '*.allow':
      'Patterns `server/tool`. `*` in place of the server or the tool matches all of them. An empty list allows nothing.',
  }),
  ...below('budgets', {
    '': 'How many calls a principal may make in a window of time. Reading a resource counts as a call.',
    principals: 'Budgets of single principals, by the id of the principal. The id is the name of its key in `keys`.',
    'principals.*': 'The budget of this principal.',
    'principals.*.calls': 'The number of calls that are allowed in each window. 0: no call is allowed.',
    'principals.*.window': withUnit('The length of a window. It begins with the first call after the previous window.'),
    roles: 'Budgets of roles. Each principal in the role that has no budget of its own gets this budget for itself.',
    'roles.*': 'The budget of each principal in this role.',
    'roles.*.calls': 'The number of calls that are allowed in each window. 0: no call is allowed.',
    'roles.*.window': withUnit('The length of a window. It begins with the first call after the previous window.'),
  }),
  ...below('keys', {
    '': 'Keys that the gateway and the broker accept in addition to the local key, by name. `hostler key add` writes them.',
    '*': 'One key. The file contains only its hash or its public half, never the key itself.',
    '*.hash': 'The text `sha256:` and the SHA-256 of the key, in hex or base64url.',
    '*.nkey': 'The public half of a NATS key pair. It replaces `hash`.',
    '*.role': 'The role of the holder. Default: the key has no role.',
    '*.expires': 'The date from which the key is void, such as `2027-01-31` or `2027-01-31T12:00:00Z`.',
    '*.worker': 'The name of a worker. Such a key opens the broker, and not the gateway.',
    '*.epoch':
      'A text that distinguishes the successive holders of one worker name; a later holder sees no earlier call. Default: a hash of the key.',
    '*.host': 'If true, a host connects to NATS with this `nkey`.',
  }),
};

const host: Readonly<Record<string, string>> = {
  ...below('listen', {
    '': 'Where clients reach the gateway. Options of `hostler up` override these keys.',
    host: 'The address at which the gateway listens.',
    port: 'The port of the gateway. 0: any free port.',
    allowedHosts: 'Further host names that clients may use in the URL of the gateway.',
    allowedOrigins: 'Origins of web pages that may use the gateway, such as `https://example.com`.',
    tls: 'PEM files of the certificate and its key. With them the gateway serves HTTPS.',
    'tls.cert':
      'The PEM file of the certificate with its chain. A relative path starts at the folder of the configuration.',
    'tls.key': 'The PEM file of the private key. A relative path starts at the folder of the configuration.',
    drain: withUnit(
      'How long a stop waits for running requests; 0: not at all. Meanwhile the port stays open, and `/readyz` answers 503.',
    ),
  }),
  ...below('log', {
    '': 'What `hostler up` logs.',
    level: 'The least severe level that is logged.',
  }),
  ...below('telemetry', {
    '': 'What Hostler reports to OpenTelemetry.',
    traces: 'If true, each call makes an OpenTelemetry span.',
  }),
  ...below('secrets', {
    '': 'Commands that print secrets, and how strict Hostler is about secrets in arguments.',
    exec: 'Commands that print secrets, by name. `${exec:NAME}` stands for the output in `env`, `headers`, `auth.clientSecret` and `auth.clientKey.pem` of a server.',
    'exec.*': 'One command. It may run for 10 s and print 64 KiB, and must exit with 0.',
    'exec.*.argv': 'The program and its arguments. Hostler starts it without a shell.',
    'exec.*.env':
      'Names of variables that the program gets from the environment of Hostler, in addition to `PATH`, `HOME` and the like.',
    'exec.*.ttl': withUnit('How long Hostler uses the output before it runs the command again.'),
    strict:
      'If true, a server with a secret in its arguments is disabled, because every local user can read the arguments of a process.',
  }),
  ...below('identity', {
    '': 'Where Hostler stores the tokens of logins. It has an effect only in your own configuration, not in the file of a project.',
    dir: 'The folder of the stored tokens: an absolute path on a local disk. Default: `$XDG_DATA_HOME/hostler`, or `~/.local/share/hostler` if that variable is not set.',
    key: 'The key that encrypts the stored tokens: 32 bytes in base64, or a passphrase of at least 16 characters. Default: a generated key in the same folder.',
  }),
};

const broker: Readonly<Record<string, string>> = {
  '': 'Lets workers on other machines use the servers. Without this key no worker can connect; `{}` serves workers on this machine.',
  listen: 'Where workers connect if there is no NATS (`broker.url`).',
  'listen.host': 'The address at which the broker listens.',
  'listen.port': 'The port of the broker. 0: any free port.',
  'listen.allowedHosts':
    'Further host names that workers may use, in addition to the addresses of the broker and the names of its certificate.',
  'listen.allowedOrigins':
    'Values of the `Origin` header with which workers may connect, such as `https://example.com`.',
  'listen.tls': 'PEM files of the certificate and its key. With them workers connect to `wss://`.',
  'listen.tls.cert': 'The PEM file of the certificate. A relative path starts at the folder of the configuration.',
  'listen.tls.key': 'The PEM file of the private key. A relative path starts at the folder of the configuration.',
  'listen.insecure': 'If true, other machines may connect without TLS. Keys and calls can then be read on the network.',
  url: 'The address of NATS, `nats://` or `tls://`. Several hosts can then share the calls, and workers connect to NATS.',
  insecure: 'If true, `url` may be another machine without TLS. Keys and calls can then be read on the network.',
  keyFile: 'NATS only: the file with the key of this host. No other user may be able to read it (`chmod 600`).',
  durability:
    'NATS only. `power`: acknowledged messages must survive a power failure. `process`: Hostler accepts a server that may lose them.',
  replicas: 'NATS only: the number of copies that the cluster keeps of each call.',
  unsafeReplicas:
    'NATS only. If true, Hostler accepts `replicas` with nats-server before 2.11, where two hosts may run one call.',
  monitor:
    'NATS only: the address of the monitoring port of nats-server, such as `http://host:8222`. Hostler asks it whether nats-server syncs every write.',
  limits: 'Limits of connections and of single workers.',
  'limits.connections': 'The number of connections that may be open at the same time.',
  'limits.callsPerWorker': 'The number of calls of one worker that run at the same time. Further calls wait.',
  'limits.bytesPerSecond':
    'The number of bytes that Hostler reads from one worker in a second. It has no effect with NATS.',
};

/** By path; `*` stands for the name of an entry. */
export const descriptions: ReadonlyMap<string, string> = new Map(
  Object.entries({
    ...topLevel,
    ...below('mcpServers.*', { ...clientKeys, ...server }),
    ...below('mcpServers.*.auth', auth),
    ...access,
    ...host,
    ...below('broker', broker),
  }),
);
