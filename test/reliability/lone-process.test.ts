/**
 * A process that only waits for its host does not end before it: timers of the host keep no process alive, and between
 * two runs of a server there is nothing else.
 */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const built = fileURLToPath(new URL('../../dist/index.js', import.meta.url));

test('an idle process learns the result of a start that took several tries', async () => {
  const script = `
    import { createHost } from ${JSON.stringify(built)};
    const host = await createHost({ mcpServers: { broken: { command: 'perl', args: ['-e', 'exit 1'] } } });
    await host.start('broken').catch(({ code }) => console.log(code));
    await host.close();
    console.log('closed');`;
  const flags = ['--input-type=module', '--eval', script];
  const { stdout } = await promisify(execFile)(process.execPath, flags);
  expect(stdout).toBe('server_parked\nclosed\n');
});
