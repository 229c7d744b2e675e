import { expect, test } from 'vitest';
import { mailboxPattern } from './ports.js';
import { instanceName } from './serve-workers.js';

test.each(['box', 'Büro PC.example.org', 'x'.repeat(255), ''])('a host on %j has a name of its own', (machine) => {
  const names = [instanceName(machine), instanceName(machine)];
  for (const name of names) expect(name).toMatch(mailboxPattern);
  expect(names[0]).not.toBe(names[1]);
});
