import { chownSync, mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { PassThrough } from 'node:stream';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { PlaceholderFiles } from '../../config/placeholders.js';
import { askTrust } from './ask-trust.js';
import { type AskTrust, TrustedSource } from './trusted-source.js';

let folder: string;
let file: string;
let env: Record<string, string>;
beforeEach(() => {
  folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-source-'));
  file = path.join(folder, 'hostler.json');
  env = { HOSTLER_DATA_DIR: path.join(folder, 'data') };
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const write = (config: unknown) => writeFileSync(file, JSON.stringify(config));
const runs = (command: string) => ({ mcpServers: { a: { command } } });
const source = (location = file) => new TrustedSource({ file: location, isFoundInFolder: true }, env);
const never: AskTrust = () => Promise.reject(new Error('asked'));

/** A terminal at which the person types these lines. */
function terminal(typed: string, isTTY = true) {
  const input = Object.assign(new PassThrough(), { isTTY });
  const output = Object.assign(new PassThrough(), { isTTY });
  input.end(typed);
  return { terminal: { input, output }, shown: () => String(output.read() ?? '') };
}
const answer = (typed: string, isTTY = true) => askTrust(env, () => terminal(typed, isTTY).terminal);

test('E8 confirmations in the working folder have no effect, even with a relative HOSTLER_DATA_DIR', async () => {
  write(runs('evil'));
  const brought = path.join(folder, 'brought');
  env = { HOSTLER_DATA_DIR: brought };
  await source().open(answer('y\n'));
  await source().open(never);
  env = { HOSTLER_DATA_DIR: path.relative(process.cwd(), brought), HOME: path.join(folder, 'home') };
  await expect(source().open(never)).rejects.toThrow('asked');
  expect(source().confirmations).toBe(path.join(folder, 'home/.local/share/hostler/trust.json'));
});

test.each([true, false])(
  'a save that changes no setting of Hostler is no change (found in the folder: %s)',
  async (found) => {
    const source = new TrustedSource({ file, isFoundInFolder: found }, env);
    const save = (more: object, command = 'x') => {
      writeFileSync(file, `// saved\n${JSON.stringify({ ...runs(command), ...more }, null, 2)}`);
      return source.read();
    };
    write({ ...runs('x'), startups: 1 });
    const first = await source.open(answer('y\n'));
    expect(first.isChanged).toBe(true);
    first.accept();
    expect(save({ startups: 2 }).isChanged).toBe(false);
    expect(save({ startups: { more: [1] } }).isChanged).toBe(false);
    expect(save({ startups: 2, roles: {} }).isChanged).toBe(true);
    // The first change was not accepted, so this is still a change.
    expect(save({ startups: 2, roles: {} }).isChanged).toBe(true);
    const changed = save({ startups: 2 }, 'y');
    expect([changed.isChanged, source.waiting]).toEqual([true, []]);
    changed.accept();
    expect(source.waiting).toEqual(found ? ['mcpServers.a'] : []);
    expect(save({ startups: 3 }, 'y').isChanged).toBe(false);
    // A new remark is reported.
    expect(save({ startups: 3, another: 1 }, 'y').isChanged).toBe(true);
  },
);

test('a file that is reverted while an edit is being applied counts as changed', async () => {
  const source = new TrustedSource({ file, isFoundInFolder: false }, env);
  write(runs('x'));
  (await source.open(never)).accept();
  write(runs('y'));
  const edit = source.read();
  write(runs('x'));
  const back = source.read();
  expect([edit.isChanged, back.isChanged]).toEqual([true, true]);
  edit.accept();
  back.accept();
  expect(source.read().isChanged).toBe(false);
});

describe('a start', () => {
  test('E8 without a terminal a file that was never confirmed is refused, and the error names hostler trust', async () => {
    write(runs('x'));
    await expect(source().open(answer('y\n', false))).rejects.toMatchObject({
      code: 'denied',
      message: `the configuration ${realpathSync(file)} was never confirmed on this machine`,
      details: { reason: 'not_trusted' },
      hint: expect.stringContaining('hostler trust'),
    });
  });

  test('E8 on a terminal the confirmation is asked for once, after the file’s programs are shown', async () => {
    write(runs('payload'));
    const { terminal: asked, shown } = terminal('y\n');
    expect((await source().open(askTrust(env, () => asked))).config).toEqual(runs('payload'));
    expect(shown()).toMatch(/runs {5}payload[\s\S]*Use this configuration\? \[y\/N\] $/);
    expect((await source().open(never)).config).toEqual(runs('payload'));
  });

  test('a confirmed file needs no terminal, whose streams take time to load', async () => {
    write(runs('x'));
    await source().open(answer('y\n'));
    const noTerminal = () => {
      throw new Error('the terminal was opened');
    };
    expect((await source().open(askTrust(env, noTerminal))).config).toEqual(runs('x'));
  });

  test.each(['\n', 'n\n', '', 'yes please\n', 'q\ny\n'])('E8 the answer %j is no', async (typed) => {
    write(runs('x'));
    await expect(source().open(answer(typed))).rejects.toMatchObject({ code: 'denied' });
    await expect(source().open(never)).rejects.toThrow('asked');
  });

  test('E8 a changed command needs a new confirmation, and is named', async () => {
    write({ mcpServers: { a: { command: 'x' }, b: { command: 'y' } } });
    await source().open(answer('y\n'));
    write({ mcpServers: { a: { command: 'x' }, b: { command: 'evil' } } });
    await expect(source().open(answer('', false))).rejects.toThrow('changed since it was confirmed: mcpServers.b');
  });

  test('E8 parts that start nothing, and removed parts, need no new confirmation', async () => {
    write({ mcpServers: { a: { command: 'x' }, b: { command: 'y' } } });
    await source().open(answer('y\n'));
    write({ mcpServers: { a: { command: 'x', timeouts: { call: '1s' } } }, roles: {}, log: { level: 'debug' } });
    await source().open(never);
  });

  test('E8 if the file changes while the question is open, the shown version is used', async () => {
    const args = [`\${file:args}`];
    write({ mcpServers: { a: { command: 'shown', args } } });
    writeFileSync(path.join(folder, 'args'), 'harmless');
    const used = await source().open(async (reading, confirmed) => {
      write({ mcpServers: { a: { command: 'evil', args } } });
      writeFileSync(path.join(folder, 'args'), 'evil');
      await answer('y\n')(reading, confirmed);
    });
    expect(used.config).toEqual({ mcpServers: { a: { command: 'shown', args: ['harmless'] } } });
    await expect(source().open(never)).rejects.toThrow('asked');
    write({ mcpServers: { a: { command: 'shown', args } } });
    await expect(source().open(never)).rejects.toThrow('asked');
  });

  test('E8 the digest and the values come from one reading of each file', async () => {
    const read = vi.spyOn(PlaceholderFiles.prototype, 'read');
    writeFileSync(path.join(folder, 'args'), 'x');
    write({ mcpServers: { a: { command: 'x', args: [`\${file:args}`] } } });
    await source().open(answer('y\n'));
    expect([read.mock.calls.length, new Set(read.mock.contexts).size]).toEqual([2, 1]);
    read.mockRestore();
  });

  test('E8 a link counts as the file behind it, used from the folder of the link', async () => {
    write(runs('./run'));
    await source().open(answer('y\n'));
    const elsewhere = path.join(folder, 'elsewhere');
    mkdirSync(elsewhere);
    const link = path.join(elsewhere, 'hostler.json');
    symlinkSync(file, link);
    // The same file, but ./run is another program.
    await expect(source(link).open(never)).rejects.toThrow('asked');
    await expect(source(link).open(answer('', false))).rejects.toThrow(realpathSync(file));
  });

  test('E8 a file of another owner needs a new confirmation, with a warning', async (context) => {
    if (process.getuid?.() !== 0) return void context.annotate('only root can change the owner of a file');
    write(runs('x'));
    await source().open(answer('y\n'));
    chownSync(file, 12_345, 12_345);
    await expect(source().open(answer('', false))).rejects.toThrow('its owner is user 12345, who is NOT you');
    const { terminal: asked, shown } = terminal('n\n');
    await expect(source().open(askTrust(env, () => asked))).rejects.toMatchObject({ code: 'denied' });
    expect(shown()).toContain('owner: user 12345, who is NOT you');
    await source().open(answer('y\n'));
    await source().open(never);
  });

  test('E8 a file that was named needs no confirmation', async () => {
    write(runs('x'));
    const named = new TrustedSource({ file, isFoundInFolder: false }, {});
    expect([(await named.open(never)).config, named.confirmations]).toEqual([runs('x'), undefined]);
  });

  test('without a home the file cannot be confirmed, and the alternative is named', () => {
    expect(() => new TrustedSource({ file, isFoundInFolder: true }, {})).toThrow(
      expect.objectContaining({ hint: expect.stringContaining('--config') }),
    );
  });
});

describe('an edit while it runs', () => {
  function accepted(running: TrustedSource): unknown {
    const { config, accept } = running.read();
    accept();
    return config;
  }

  test('E8 waits until it is confirmed, and then takes effect', async () => {
    write(runs('old'));
    const running = source();
    (await running.open(answer('y\n'))).accept();
    write({ ...runs('new'), log: { level: 'debug' } });
    expect(accepted(running)).toEqual({ ...runs('old'), log: { level: 'debug' } });
    expect(running.waiting).toEqual(['mcpServers.a']);
    await source().open(answer('y\n'));
    expect(accepted(running)).toEqual({ ...runs('new'), log: { level: 'debug' } });
    expect(running.waiting).toEqual([]);
  });

  test('E8 an unconfirmed new content of a file that an entry names is not used', async () => {
    const config = { mcpServers: { a: { command: 'node', env: { NODE_OPTIONS: `\${file:options}` } } } };
    writeFileSync(path.join(folder, 'options'), '--safe');
    write(config);
    const running = source();
    (await running.open(answer('y\n'))).accept();
    writeFileSync(path.join(folder, 'options'), '--require=./evil.cjs');
    write({ ...config, log: {} });
    expect(accepted(running)).toMatchObject({ mcpServers: { a: { env: { NODE_OPTIONS: '--safe' } } } });
    expect(running.waiting).toEqual(['mcpServers.a']);
  });

  test('a mistake in a part that waits for confirmation is still reported', async () => {
    write(runs('old'));
    const running = source();
    (await running.open(answer('y\n'))).accept();
    write({ ...runs('old'), mcpservers: {} });
    expect(() => running.read()).toThrow('mcpservers: is not a key');
    write({ ...runs('old'), listen: { port: -1 } });
    expect(() => running.read()).toThrow('listen.port');
  });

  test('the next edit is not compared with an edit that was not accepted', async () => {
    write(runs('old'));
    const running = source();
    (await running.open(answer('y\n'))).accept();
    write({});
    running.read();
    write(runs('new'));
    expect(running.read().config).toEqual(runs('old'));
  });
});
