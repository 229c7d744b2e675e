import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { expect, test } from 'vitest';
import { eventually } from '../../../test/eventually.js';
import { isAlive } from './host-address.js';

test('a process that has ended is not alive, even if its parent does not reap it', async () => {
  const program = '$| = 1; my $child = fork; exit if !$child; print "$child\\n"; <STDIN>;';
  const parent = spawn('perl', ['-e', program], { stdio: ['pipe', 'pipe', 'inherit'] });
  const [printed] = await once(parent.stdout, 'data');
  const child = Number(String(printed));
  await eventually('the child has ended', () => !isAlive(child));
  expect(process.kill(child, 0), 'the child was reaped').toBe(true);
  expect(isAlive(parent.pid as number)).toBe(true);
  parent.stdin.end();
  await once(parent, 'exit');
  expect(isAlive(parent.pid as number)).toBe(false);
});
