/**
 * The official client in the authorization scenarios, without Hostler: a provider in memory, with a browser that follows the
 * redirect. docs/conformance.md shows its results beside those of Hostler.
 */
import { ClientCredentialsProvider, PrivateKeyJwtProvider } from '@modelcontextprotocol/client';

const redirectUrl = 'http://127.0.0.1:7777/callback';

class BrowserProvider {
  redirectUrl = redirectUrl;
  clientMetadataUrl = 'https://conformance-test.local/client-metadata.json';
  callback = undefined;
  #client;
  #tokens;
  #verifier;

  constructor({ client_id, client_secret } = {}) {
    if (client_id !== undefined) this.#client = { client_id, client_secret };
  }

  get clientMetadata() {
    return {
      client_name: 'sdk',
      redirect_uris: [redirectUrl],
      grant_types: ['authorization_code', 'refresh_token'],
      response_types: ['code'],
    };
  }

  clientInformation() {
    return this.#client;
  }

  saveClientInformation(client) {
    this.#client = client;
  }

  tokens() {
    return this.#tokens;
  }

  saveTokens(tokens) {
    this.#tokens = tokens;
  }

  saveCodeVerifier(verifier) {
    this.#verifier = verifier;
  }

  codeVerifier() {
    return this.#verifier;
  }

  async redirectToAuthorization(url) {
    const { headers } = await fetch(url, { redirect: 'manual' });
    this.callback = new URL(headers.get('location') ?? redirectUrl).searchParams;
  }
}

export function sdkProvider(scenario, context) {
  const {
    client_id: clientId,
    client_secret: clientSecret,
    private_key_pem: privateKey,
    signing_algorithm: algorithm,
  } = context;
  if (scenario === 'auth/client-credentials-basic') return new ClientCredentialsProvider({ clientId, clientSecret });
  if (scenario === 'auth/client-credentials-jwt') return new PrivateKeyJwtProvider({ clientId, privateKey, algorithm });
  return new BrowserProvider(context);
}
