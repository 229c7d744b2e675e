import { expect, test } from 'vitest';
import { parseHostConfig } from '../config/host-config.js';
import { HostRules } from './host-rules.js';

const settings = (config: object) =>
  parseHostConfig(config, (problem) => {
    throw problem;
  });

test('E5 roles, and guards of the embedder, tell callers apart; a reload that adds or removes them counts at once', () => {
  const rules = new HostRules(() => undefined);
  const seen = [rules.hasRoles];
  rules.configure(settings({ mcpServers: {} }));
  seen.push(rules.hasRoles);
  rules.configure(settings({ mcpServers: {}, roles: { dev: { allow: ['*/*'] } } }));
  seen.push(rules.hasRoles);
  rules.configure(settings({ mcpServers: {}, unlistedRole: 'allow' }));
  seen.push(rules.hasRoles);
  rules.configure(settings({ mcpServers: {} }));
  seen.push(rules.hasRoles);
  rules.setOwn([() => ({ allow: true })]);
  seen.push(rules.hasRoles);
  expect(seen).toEqual([false, false, true, true, false, true]);
});
