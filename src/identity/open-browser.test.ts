import { describe, expect, test } from 'vitest';
import { browserCommand, checkedBrowserUrl, mayOpenBrowser } from './open-browser.js';

describe('AC-A8 what is passed to a browser', () => {
  const hostile = [
    ...['javascript:alert(1)', 'file:///etc/passwd', 'data:text/html,x', 'vbscript:x', 'smb://evil/x', 'ftp://evil/x'],
    ...['--flag', '-e', '--no-sandbox https://a', '', ' ', 'https:', 'https://', 'http://', 'http://evil.example/a'],
    ...[
      'http://10.0.0.1/a',
      'http://127.0.0.1.evil.example/',
      'http://localhost.evil.example/',
      'ws://127.0.0.1/',
      'about:blank',
    ],
    ...[
      'https://user@evil.example/',
      'https://user:pw@evil.example/',
      'https://a@b@c/',
      'https://a b/',
      'https://a\\b c',
    ],
    ...[
      'https://a/\n--flag',
      'https://a/\r\nx',
      'https://a/\tx',
      'https://a/\0x',
      'https://a/ x',
      '\nhttps://a/',
      'https://a/\u0007',
    ],
    ...[
      `https://a/${'x'.repeat(9_000)}`,
      `https://a/${'x'.repeat(1_048_576)}`,
      'mailto:x@y',
      'ssh://x',
      'tel:1',
      'chrome://x',
    ],
    ...[
      '$(touch /tmp/x)',
      '`id`',
      '; id',
      '| id',
      '&& id',
      '"; id; "',
      "'; id; '",
      '> /tmp/x',
      '%COMSPEC%',
      'calc.exe',
    ],
    ...[
      '\\\\evil\\share',
      '//evil/share',
      'C:\\Windows\\x.exe',
      'https//a',
      'https:/\u0000/a',
      'view-source:https://a',
    ],
    ...['intent://x', 'ms-msdt:/id', 'search-ms:x', 'zoommtg://x', 'steam://x', 'gopher://x', 'jar:https://a!/'],
  ];
  test.each(hostile)('AC-A8 %j is refused', (url) => {
    expect(() => checkedBrowserUrl('s', url)).toThrow(/not a usable https URL/);
  });

  test('AC-A8 the list has at least 60 hostile addresses', () => {
    expect(hostile.length).toBeGreaterThanOrEqual(60);
  });

  test.each([
    ['https://as.example/a?x=$(id)&y=`id`', 'https://as.example/a?x=$(id)&y=`id`'],
    ["https://as.example/a?x='%22;id", 'https://as.example/a?x=%27%22;id'],
    ['https://bücher.example/a', 'https://xn--bcher-kva.example/a'],
    ['HTTP://LOCALHOST:80/a', 'http://localhost/a'],
    ['http://127.0.0.1:3000/a', 'http://127.0.0.1:3000/a'],
  ])('AC-A8 %s is one argument in the spelling of the parser', (url, href) => {
    const checked = checkedBrowserUrl('s', url);
    expect(checked).toBe(href);
    for (const platform of ['linux', 'darwin', 'win32'] as const) {
      const [, args] = browserCommand(checked, platform);
      expect(args.at(-1)).toBe(checked);
      expect(args.at(-1)).toMatch(/^https?:\/\//);
    }
  });

  test.each([
    ['a terminal with a display', { DISPLAY: ':0' }, true, true],
    ['Wayland', { WAYLAND_DISPLAY: 'w' }, true, true],
    ['no display', {}, true, false],
    ['no terminal', { DISPLAY: ':0' }, false, false],
    ['over SSH', { DISPLAY: ':0', SSH_CONNECTION: 'x' }, true, false],
  ])('a browser is opened: %s', (_what, env, isTerminal, may) => {
    expect(mayOpenBrowser(env, isTerminal, 'linux')).toBe(may);
  });
});
