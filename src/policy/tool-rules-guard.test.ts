import { expect, test } from 'vitest';
import { noToolRules, type ToolRules } from '../config/tool-rules.js';
import { toolRulesGuard } from './allowlist.js';

const principal = { id: 'ada', role: undefined, scopes: [] };

test.each<[string, Partial<ToolRules>, string | undefined, boolean]>([
  ['without rules every tool is available', {}, 'read', true],
  ['a denied tool is not available', { deny: ['read'] }, 'read', false],
  ['a tool that is not denied is available', { deny: ['read'] }, 'write', true],
  ['with a list of allowed tools the others are not available', { allow: ['read'] }, 'write', false],
  ['an empty list allows nothing', { allow: [] }, 'read', false],
  ['a tool that is both allowed and denied is not available', { allow: ['read'], deny: ['read'] }, 'read', false],
  ['a star alone matches every tool', { allow: ['*'], deny: [] }, 'read', true],
  ['a star at the end matches every tool with that prefix', { allow: ['re*'] }, 'read', true],
  ['a star at the end matches no tool without that prefix', { allow: ['re*'] }, 'write', false],
  ['a star elsewhere is an ordinary character', { allow: ['r*d'] }, 'read', false],
  ['the server itself is available', { deny: ['*'] }, undefined, true],
])('%s', (_name, rules, tool, allow) => {
  const guard = toolRulesGuard((server) => (server === 'git' ? { ...noToolRules, ...rules } : undefined));
  expect(guard({ principal, server: 'git', tool, action: 'call' }).allow).toBe(allow);
  expect(guard({ principal, server: 'other', tool, action: 'call' }).allow).toBe(true);
});
