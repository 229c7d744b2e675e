/**
 * Performs one login: discovery, registration, callback, redemption, and storing the grant. Runs in the process of `hostler login`.
 * Not here: the decisions (login-state.ts), prompts and browser (cli/login.ts).
 *
 * Invariants: the callback is bound before a client is registered and before the URL is shown. `state` and verifier stay in
 * memory. No grant is stored before the tokens have arrived. Tokens that are not stored are revoked.
 */
import { createHash, randomBytes } from 'node:crypto';
import type { AuthSettings } from '../config/auth-settings.js';
import type { Cancel, Clock } from '../kernel/clock.js';
import { type HostError, isHostError } from '../kernel/errors.js';
import type { Redactor } from '../kernel/redact.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { bearerChallenge, scopesOf } from '../transports/http/challenges.js';
import { type Callback, openCallback } from './callback.js';
import { type AuthorizationServer, type Discovered, discover } from './discovery.js';
import type { GrantRow } from './grant-row.js';
import { loginRefused } from './identity-errors.js';
import type { ClientRow, IdentityStore } from './identity-store.js';
import { type LoginEvent, type LoginState, step } from './login-state.js';
import type { OAuthHttp } from './oauth-http.js';
import { checkedBrowserUrl } from './open-browser.js';
import { storePatiently } from './open-store.js';
import { addPending } from './pending-logins.js';
import {
  type ChosenClient,
  checkLoginPage,
  clientNeeded,
  configuredClient,
  metadataClient,
  newGrant,
  registerClient,
  registrationWay,
} from './registration.js';
import { isClientRefusal, requestToken, revokeGrant, type TokenAnswer, tokenParameters } from './token-endpoint.js';

const challengeMs = 5_000;
const askedMax = 8;
const identityCharsMax = 200;

export interface LoginOptions {
  readonly server: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly auth: AuthSettings;
  readonly store: IdentityStore;
  readonly http: OAuthHttp;
  readonly clock: Clock;
  readonly redactor: Redactor;
  /** `--issuer`, `--scopes`, `--port`, `--fresh`. */
  readonly issuer?: string | undefined;
  readonly scopes?: readonly string[] | undefined;
  readonly port?: number | undefined;
  readonly isFresh?: boolean;
  /** Time for the person, from the moment the URL is shown. */
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
  readonly ui: LoginUi;
}

export interface LoginUi {
  /** The URL for the browser. The returned promise is not awaited. */
  show(login: {
    readonly url: string;
    readonly redirectUri: string;
    readonly port: number;
    readonly expiresAt: Date;
  }): void;
  /** Calls `onText` with each address that the person pastes. */
  onPaste(onText: (text: string) => void): void;
  askAgain(): void;
  /** False: the person says no, or cannot be asked. `about`: the option `--yes` answers questions about the account only. */
  confirm(question: string, about: 'account' | 'issuer'): Promise<boolean>;
}

export interface LoginResult {
  readonly row: GrantRow;
  readonly isOldest: boolean;
  /** Scopes that were asked for and not granted. */
  readonly missing: readonly string[];
}

export const login = (options: LoginOptions): Promise<LoginResult> => new Login(options).run();

interface Plan {
  readonly found: Discovered;
  readonly scopes: readonly string[];
  readonly client: ChosenClient;
  readonly callback: Callback;
  readonly state: string;
  readonly verifier: string;
}

class Login {
  readonly #options: LoginOptions;
  readonly #before: GrantRow | undefined;
  #state: LoginState = { kind: 'preparing' };
  #callback: Callback | undefined;
  #cancelTimeout: Cancel = () => {};
  #endPending: () => void = () => {};
  #onCode: (code: string) => void = () => {};
  #onEnd: (reason: string) => void = () => {};

  constructor(options: LoginOptions) {
    this.#options = options;
    const { account = '' } = options.auth;
    this.#before = options.store.findGrant(options.url, { grant: 'code', account });
  }

  async run(): Promise<LoginResult> {
    const { signal, redactor } = this.#options;
    const onAbort = () => this.#on({ kind: 'cancelled' });
    signal.addEventListener('abort', onAbort, { once: true });
    const ended = new Promise<never>((_resolve, reject) => {
      this.#onEnd = (reason) => reject(loginRefused(this.#options.server, reason));
    });
    ended.catch(() => {});
    try {
      const found = await Promise.race([this.#discover(), ended]);
      const plan = await Promise.race([this.#prepare(found), ended]);
      for (const secret of [plan.state, plan.verifier]) redactor.know(secret);
      const code = await Promise.race([this.#wait(plan), ended]);
      redactor.know(code);
      return await this.#redeem(plan, code);
    } finally {
      this.#cancelTimeout();
      this.#endPending();
      signal.removeEventListener('abort', onAbort);
      this.#callback?.close();
    }
  }

  #on(event: LoginEvent): void {
    const before = this.#state;
    const state = step(before, event);
    this.#state = state;
    if (state === before) return;
    if (state.kind === 'redeeming') this.#onCode(state.code);
    else if (state.kind === 'refused') this.#onEnd(state.reason);
    else this.#options.ui.askAgain();
  }

  async #discover(): Promise<Discovered & { readonly challenged: readonly string[] }> {
    const { server, url, auth, http, clock, ui } = this.#options;
    const challenge = bearerChallenge(await this.#challenge());
    const isStatic = auth.clientSecret !== undefined || auth.clientKey !== undefined;
    const input = {
      server,
      url,
      issuer: this.#options.issuer ?? auth.issuer,
      resource: auth.resource,
      resourceMetadata: challenge?.params.get('resource_metadata'),
      knownIssuer: this.#before?.issuer,
      assumesPkce: auth.pkce === 'assume',
      confirmMove: isStatic ? undefined : (question: string) => ui.confirm(`server '${server}': ${question}`, 'issuer'),
    };
    const challenged = scopesOf(challenge?.params.get('scope'));
    return { ...(await discover(input, http, clock)), challenged };
  }

  /** Header `WWW-Authenticate` of a request without a token; undefined: the server did not ask for one. */
  async #challenge(): Promise<string | undefined> {
    const { url, http, headers } = this.#options;
    const own = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
    const clientInfo = { name: 'hostler', version: '0' };
    const requests = [
      { method: 'initialize', params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo } },
      // Some servers let the handshake pass, and ask for a token with the first list.
      { method: 'tools/list', params: {} },
    ];
    for (const request of requests) {
      const answer = await http({
        url,
        method: 'POST',
        headers: { ...own, 'content-type': 'application/json', accept: 'application/json, text/event-stream' },
        body: JSON.stringify({ jsonrpc: '2.0', id: 1, ...request }),
        timeoutMs: challengeMs,
      }).catch((error: unknown) => {
        if (isHostError(error) && error.details.reason === 'address_refused') throw error;
        return undefined;
      });
      const value = answer?.status === 401 ? answer.headers['www-authenticate'] : undefined;
      if (value !== undefined) return Array.isArray(value) ? value.join(', ') : value;
    }
    return undefined;
  }

  async #prepare(found: Discovered & { readonly challenged: readonly string[] }): Promise<Plan> {
    const { server, store, auth, clock, isFresh = false, port: wantedPort } = this.#options;
    const { as } = found;
    if ((this.#options.issuer ?? auth.issuer) === undefined) checkLoginPage(server, as);
    const scopes = this.#scopes(found);
    // A login page that refuses the metadata document would refuse it again.
    const isRegistered = this.#before?.facts.way === 'registered' && this.#before.issuer === as.issuer;
    const way = registrationWay(as, auth, isFresh || isRegistered);
    // A client that cannot be used is refused here, before a port is opened.
    const given = way === 'configured' ? configuredClient(server, as, auth) : undefined;
    const { host = '127.0.0.1', port = 0, path = '/callback' } = auth.redirect ?? {};
    const fixed = wantedPort ?? port;
    const isUsable = (redirect: string) => {
      const url = new URL(redirect);
      return (
        url.pathname === path && (fixed === 0 || url.port === String(fixed)) && /^(?:127|localhost)/.test(url.hostname)
      );
    };
    const known =
      way === 'registered' && !isFresh ? store.findClient(as.issuer, clock.date().getTime(), isUsable) : undefined;
    const bind = (name: typeof host, remembered?: string) => this.#bind(name, fixed, path, remembered);
    const { redirectUri } = await bind(host, known?.redirect);
    if (way === 'none') throw clientNeeded(server, as, redirectUri);
    const client =
      given ??
      (way === 'metadata_document'
        ? metadataClient(auth)
        : { ...(known?.redirect === redirectUri ? known : await this.#register(as, redirectUri, bind)), way });
    const secret = () => randomBytes(32).toString('base64url');
    return { found, scopes, client, callback: this.#callback as Callback, state: secret(), verifier: secret() };
  }

  async #register(
    as: AuthorizationServer,
    redirectUri: string,
    bind: (host: 'localhost') => Promise<Callback>,
  ): Promise<ClientRow> {
    const { server, store, clock, redactor, http } = this.#options;
    const register = (redirect: string) =>
      registerClient({ server, as, redirect, http, clock, redact: redactor.redact });
    const client = await register(redirectUri).catch(async (error: unknown) => {
      // Some authorization servers accept only the name `localhost`, and no address.
      const isRefused = isHostError(error) && error.details.httpStatus === 400;
      if (!isRefused || new URL(redirectUri).hostname !== '127.0.0.1') throw error;
      this.#callback?.close();
      return register((await bind('localhost')).redirectUri);
    });
    if (client.secret !== undefined) redactor.know(client.secret);
    await storePatiently(clock, () => store.saveClient(client));
    return client;
  }

  /** Listens on the port of the registration if it is free, else on the configured port, else on any free port. */
  async #bind(
    host: '127.0.0.1' | 'localhost',
    fixed: number,
    path: string,
    known: string | undefined,
  ): Promise<Callback> {
    const onReturn = (params: URLSearchParams) => {
      const before = this.#state;
      this.#on({ kind: 'returned', params });
      const { kind } = this.#state;
      return this.#state === before ? undefined : kind === 'redeeming' ? kind : 'refused';
    };
    const open = (name: typeof host, port: number) => openCallback({ host: name, port, path, onReturn });
    const url = known === undefined ? undefined : new URL(known);
    const remembered = url && open(url.hostname === 'localhost' ? 'localhost' : '127.0.0.1', Number(url.port));
    this.#callback = (await remembered?.catch(() => undefined)) ?? (await open(host, fixed));
    // The login was cancelled meanwhile, so nothing else would close it.
    if (this.#state.kind === 'refused') this.#callback.close();
    return this.#callback;
  }

  /**
   * The scopes of the command alone, if it has any: a server can ask for scopes that its authorization server does not know. Otherwise the
   * configured scopes, else those of the challenge, else those of the resource, in addition to those that calls have asked for.
   */
  #scopes({ challenged, scopesSupported, as }: Discovered & { readonly challenged: readonly string[] }): string[] {
    const { auth, server, scopes: given } = this.#options;
    const configured = given ?? auth.scopes;
    const asked = configured ?? (challenged.length > 0 ? challenged : (scopesSupported ?? []));
    const wanted = given ? [] : (this.#before?.wanted ?? []);
    const { scopesMax } = auth;
    const union = [...new Set([...asked, ...wanted])];
    const cut = scopesMax && !configured ? challenged.filter((scope) => !scopesMax.includes(scope)) : [];
    if (cut.length > 0) throw loginRefused(server, 'scope_ceiling', `: ${cut.join(' ')}`);
    const allowed = scopesMax ? union.filter((scope) => scopesMax.includes(scope)) : union;
    // `offline_access` alone would replace the default scopes, which the server grants if none are asked for.
    const isInMax = scopesMax?.includes('offline_access') ?? true;
    const isOffline = isInMax && allowed.length > 0 && as.scopes_supported?.includes('offline_access') === true;
    return isOffline && !allowed.includes('offline_access') ? [...allowed, 'offline_access'] : allowed;
  }

  #wait(plan: Plan): Promise<string> {
    const { server, auth, clock, timeoutMs, ui, store, url: own } = this.#options;
    const { found, client, callback, state, verifier, scopes } = plan;
    const { as, resource } = found;
    if (as.authorization_endpoint === undefined) throw loginRefused(server, 'metadata_invalid', ': no login page');
    const url = new URL(checkedBrowserUrl(server, as.authorization_endpoint));
    const params = {
      ...auth.authorizeParams,
      response_type: 'code',
      client_id: client.clientId,
      redirect_uri: callback.redirectUri,
      ...(scopes.length === 0 ? {} : { scope: scopes.join(' ') }),
      state,
      code_challenge: createHash('sha256').update(verifier).digest('base64url'),
      code_challenge_method: 'S256',
      ...(resource === undefined ? {} : { resource }),
    };
    for (const [name, value] of Object.entries(params)) url.searchParams.set(name, value);
    const shown = checkedBrowserUrl(server, url.href);
    return new Promise((resolve) => {
      this.#onCode = resolve;
      const needsIss = as.authorization_response_iss_parameter_supported === true;
      const { redirectUri, port } = callback;
      this.#state = { kind: 'waiting', expected: { state, issuer: as.issuer, needsIss, redirectUri }, wrongPastes: 0 };
      this.#cancelTimeout = clock.at(clock.nowMs() + timeoutMs, () => this.#on({ kind: 'expired' }));
      this.#endPending = addPending(store, { url: own, account: auth.account }, clock.date().getTime(), timeoutMs);
      ui.onPaste((text) => this.#on({ kind: 'pasted', text }));
      ui.show({ url: shown, redirectUri, port, expiresAt: new Date(clock.date().getTime() + timeoutMs) });
    });
  }

  async #redeem({ found, client, callback, verifier, scopes }: Plan, code: string): Promise<LoginResult> {
    const { auth, http, clock, store, redactor, url } = this.#options;
    const { as, resource } = found;
    const answer = await requestToken(
      http,
      {
        issuer: as.issuer,
        tokenEndpoint: as.token_endpoint,
        client,
        grantType: 'authorization_code',
        params: tokenParameters(auth.tokenParams, resource, {
          ...{ code, redirect_uri: callback.redirectUri, code_verifier: verifier },
        }),
      },
      clock.date(),
    );
    if (answer.kind !== 'tokens') throw this.#notRedeemed(answer, client, as.issuer);
    const { accessToken, refreshToken } = answer;
    for (const secret of [accessToken, refreshToken]) if (secret) redactor.know(secret);
    try {
      if (accessToken === '') throw loginRefused(this.#options.server, 'token_invalid');
      const before = this.#before?.facts;
      const identity = await this.#identityOf(answer.idToken, as.issuer, client.clientId);
      const nowMs = clock.date().getTime();
      const asked = [...(before?.asked ?? []), { scopes, atMs: nowMs }].slice(-askedMax);
      const grant = newGrant({ url, found, client, account: auth.account, answer, scopes, nowMs });
      const facts = { ...grant.facts, grantType: 'code' as const, identity, asked };
      const row = await storePatiently(clock, () => store.saveLogin({ ...grant, facts }));
      // Many servers give a refresh token without naming the scope for it.
      const isMissing = (scope: string) => !row.scopes.includes(scope) && scope !== 'offline_access';
      return { row, isOldest: found.isOldest, missing: scopes.filter(isMissing) };
    } catch (error) {
      const { revocation_endpoint: endpoint, issuer } = as;
      await revokeGrant(http, { issuer, client, endpoint }, { accessToken, refreshToken });
      throw error;
    }
  }

  /** Name of the account, for people. Throws if it is another one than before, and the person does not want that. */
  async #identityOf(idToken: string | undefined, issuer: string, clientId: string): Promise<string | undefined> {
    const { server, redactor, ui } = this.#options;
    const name = await nameOf(idToken, issuer, clientId);
    // The authorization server chooses the text, and people see it.
    const identity = name && neutraliseLine(redactor.mask(name), identityCharsMax);
    const before = this.#before?.facts.identity;
    if (before === undefined || identity === undefined || before === identity) return identity;
    const question = `This login is for ${identity}; the one before was for ${before}. Use it?`;
    if (!(await ui.confirm(question, 'account'))) throw loginRefused(server, 'account_changed');
    return identity;
  }

  #notRedeemed(answer: Exclude<TokenAnswer, { kind: 'tokens' }>, client: ChosenClient, issuer: string): HostError {
    const { server, store } = this.#options;
    if (answer.kind === 'unavailable')
      return loginRefused(server, answer.isSent ? 'login_interrupted' : 'login_failed', ` (${answer.reason})`);
    const isGone = isClientRefusal(answer);
    if (isGone && client.way === 'registered') store.clientGone(issuer, client.clientId);
    return loginRefused(server, isGone ? 'client_gone' : 'login_failed', ` (${answer.error})`);
  }
}

/** Only for people: a token that cannot be read, or is for another client, names no account. */
async function nameOf(idToken: string | undefined, issuer: string, clientId: string): Promise<string | undefined> {
  if (idToken === undefined) return undefined;
  try {
    const claims = (await import('jose')).decodeJwt(idToken);
    const isOurs = claims.iss === issuer && [claims.aud].flat().includes(clientId);
    const name = [claims.preferred_username, claims.email, claims.name, claims.sub].find(
      (each) => typeof each === 'string',
    );
    return isOurs ? (name as string | undefined) : undefined;
  } catch {
    return undefined;
  }
}
