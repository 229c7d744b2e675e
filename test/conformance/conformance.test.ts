/**
 * The official suite against `hostler up`, in two cells: a server of each era, one over stdio and one over HTTP, and clients of
 * the same era.
 * Not here: all other cells (`npm run conformance`). Legacy clients of a server behind a pipe have a process each, which makes
 * that cell twice as long.
 */
import { beforeAll, expect, test } from 'vitest';
import { ensureConformanceTools } from '../../scripts/bootstrap.mjs';
import { runCell } from './cell-run.mjs';
import { requirements, upstreams } from './cells.mjs';

const installMs = 300_000;
const cellMs = 180_000;

beforeAll(() => ensureConformanceTools(), installMs);

test.each([
  ['http-legacy', '2025-11-25', 30],
  ['stdio-modern', '2026-07-28', 37],
])(
  '%s meets all requirements of %s',
  async (name, revision, count) => {
    const upstream = upstreams.find((each) => each.name === name);
    const requirement = requirements.find((each) => each.revision === revision);
    if (!upstream || !requirement) throw new Error('no such cell');
    const { row, problems } = await runCell(upstream, requirement);
    expect(problems).toEqual([]);
    expect(row.single).toMatchObject({ passed: count, total: count });
  },
  cellMs,
);
