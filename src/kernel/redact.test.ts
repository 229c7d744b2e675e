import { describe, expect, test } from 'vitest';
import { createRedactor } from './redact.js';

const filler = 'aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3z';
const shapes = [
  `ghp_${filler}`,
  `gho_${filler}`,
  `github_pat_11ABCDEFG0_${filler}`,
  `glpat-${filler.slice(0, 20)}`,
  `sk-${filler}`,
  `sk-proj-${filler}`,
  `sk-ant-api03-${filler}`,
  `sk_live_${filler}`,
  `xoxb-123456789012-${filler}`,
  'AKIAIOSFODNN7EXAMPLE',
  `AIza${filler}A`,
  `ya29.${filler}`,
  `npm_${filler}${filler}`,
  `pypi-${filler}`,
  `hf_${filler}`,
  `ntn_${filler}`,
  `tvly-${filler}`,
  `SG.${filler.slice(0, 22)}.${filler}`,
  `eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.${filler}`,
  `hk_${filler}_-${filler.slice(0, 7)}`,
  `SU${'A2B3C4D5E6F7'.repeat(5).slice(0, 56)}`,
  `-----BEGIN RSA PRIVATE KEY-----\n${filler}\n${filler}\n-----END RSA PRIVATE KEY-----`,
];
const labelled = [
  (secret: string) => `Authorization: Bearer ${secret}`,
  (secret: string) => `"authorization":"Basic ${secret}"`,
  (secret: string) => `bearer ${secret}`,
  (secret: string) => `token=${secret}`,
  (secret: string) => `access_token: ${secret}`,
  (secret: string) => `{"refresh_token":"${secret}"}`,
  (secret: string) => `?api_key=${secret}&x=1`,
  (secret: string) => `API_KEY='${secret}'`,
  (secret: string) => `PASSWORD=${secret}`,
  (secret: string) => `client_secret=${secret}`,
  (secret: string) => `?key=${secret}`,
  (secret: string) => `https://user:${secret}@host/path`,
  (secret: string) => `Set-Cookie: ${secret}`,
];

describe('X15 redaction removes', () => {
  const { redact } = createRedactor();
  test.each(shapes.map((secret) => [secret.slice(0, 12), secret]))('a secret of the shape %s…', (_head, secret) => {
    expect(redact(`before ${secret} after`)).toBe('before [REDACTED] after');
  });

  test.each(labelled.map((label) => [label('SECRET'), label] as const))(
    'the secret after the label in %s',
    (_text, label) => {
      expect(redact(`log ${label(filler)} end`)).not.toContain(filler);
    },
  );

  test('a private key that was cut off, up to the end of the text', () => {
    expect(redact(`x -----BEGIN PRIVATE KEY-----\n${filler}`)).toBe('x [REDACTED]');
  });

  test('known values, in every encoding in which they may appear', () => {
    const secret = 'correct "horse" battery/staple';
    const known = createRedactor([secret]).redact;
    const forms = [
      secret,
      JSON.stringify({ secret }),
      encodeURIComponent(secret),
      Buffer.from(secret).toString('base64'),
      Buffer.from(secret).toString('base64url'),
      Buffer.from(secret).toString('hex'),
    ];
    for (const form of forms) expect(known(`x ${form} y`)).toContain('[REDACTED]');
    for (const form of forms) expect(known(form)).not.toContain('horse');
  });

  test('a long secret that contains a short one, as a whole', () => {
    expect(createRedactor(['abcdef', 'abcdef-ghijkl']).redact('<abcdef-ghijkl>')).toBe('<[REDACTED]>');
  });
});

describe('text without secrets stays', () => {
  test.each([
    'could not connect to database',
    'the monkey key ring',
    'npm_config_cache is set',
    'task-list of 3 items',
    'tools/list took 12 ms',
    'https://host:8383/mcp',
  ])('%s', (text) => {
    expect(createRedactor(['short']).redact(text)).toBe(text);
  });
});

test('beyond the bound the oldest values are forgotten, not the newest', () => {
  const { redact, know } = createRedactor();
  for (let i = 0; i < 1_500; i++) know(`secret-value-${i}`);
  expect(redact('secret-value-1499')).toBe('[REDACTED]');
});

test('a forgotten value is ordinary text, and the other values are still known', () => {
  const { redact, know, forget } = createRedactor(['first-value', 'second-value']);
  forget('first-value');
  know('third-value');
  expect(redact('first-value second-value third-value')).toBe('first-value [REDACTED] [REDACTED]');
});

test('X15 a value that several objects have added is known until the last of them forgets it', () => {
  const { redact, know, forget } = createRedactor();
  const [one, two] = [{}, {}];
  know('shared-value', one);
  know('shared-value', one);
  know('shared-value', two);
  forget('shared-value', one);
  forget('shared-value', one);
  forget('shared-value');
  expect(redact('shared-value')).toBe('[REDACTED]');
  forget('shared-value', two);
  expect(redact('shared-value')).toBe('shared-value');
});

test('X15 a value of the configuration is never forgotten, nor is a value that very many objects have added', () => {
  const { redact, know, forget } = createRedactor(['of-the-config']);
  const owners = Array.from({ length: 1_000 }, () => ({}));
  for (const owner of owners) {
    know('of-the-config', owner);
    know('of-many-owners', owner);
  }
  for (const owner of owners) {
    forget('of-the-config', owner);
    forget('of-many-owners', owner);
  }
  expect(redact('of-the-config of-many-owners')).toBe('[REDACTED] [REDACTED]');
});

describe('a sentence of Hostler', () => {
  const { redact, mask, know } = createRedactor();
  know('correct-horse');

  test.each([
    "authorization: server 'linear' wants a login",
    'linear: the token: expired an hour ago',
    'mcpServers.a.headers.Cookie: must be one line of printable text',
  ])('is not redacted by labels: %s', (sentence) => {
    expect(mask(sentence)).toBe(sentence);
    expect(redact(sentence)).toContain('[REDACTED]');
  });

  test('hides known values, shapes of tokens, and passwords in addresses', () => {
    expect(mask(`correct-horse ghp_${filler} http://user:p4ss@proxy:3128 http://:p4ss@proxy`)).toBe(
      '[REDACTED] [REDACTED] http://user:[REDACTED]@proxy:3128 http://:[REDACTED]@proxy',
    );
  });
});
