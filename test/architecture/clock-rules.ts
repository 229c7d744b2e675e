/**
 * Finds tests that compare real time. A pure function from source texts to sentences about mistakes. `npm test` runs beside other
 * programs, so its time limits may only detect hangs: `timeLimitMs()` of test/tier.ts, or at least ten seconds.
 * Not here: reading the tree (clocks.test.ts), and comparisons that a driver script makes by itself.
 */
import { parseAst } from 'vitest/node';

/** Path below the repository, with forward slashes, to its text. */
export type Sources = Readonly<Record<string, string>>;

type Node = Record<string, unknown> & { type: string; start: number; end: number };

const hangMs = 10_000;
const isNode = (value: unknown): value is Node =>
  typeof value === 'object' && value !== null && 'type' in value && typeof value.type === 'string';

function* nodesOf(node: Node): Generator<Node> {
  yield node;
  for (const value of Object.values(node))
    for (const each of Array.isArray(value) ? value : [value]) if (isNode(each)) yield* nodesOf(each);
}

/**
 * True for the name of a duration, or a difference of two clock readings. The time left until a planned event is not one, because
 * it shrinks under load.
 */
const isElapsed = (text: string): boolean =>
  /(?:performance|Date)\.now\(\) -/.test(text) ||
  /\b(?:took|elapsed|durations?|latenc(?:y|ies)|p(?:50|9\d+))\b/i.test(text) ||
  (/Ms\b/.test(text) && !/(?:InMs|retryAfterMs)\b/.test(text));

const isHangLimit = (limit: Node, text: string): boolean =>
  /\btimeLimitMs\(/.test(text) ||
  [...nodesOf(limit)].some(({ type, value }) => type === 'Literal' && typeof value === 'number' && value >= hangMs);

/** The two sides of `expect(duration).toBeLessThan(limit)`. */
function upperLimitIn(node: Node): { value: Node; limit: Node } | undefined {
  const { callee, arguments: args } = node as { callee?: unknown; arguments?: unknown[] };
  if (node.type !== 'CallExpression' || !isNode(callee) || callee.type !== 'MemberExpression') return undefined;
  const { object, property } = callee as { object?: unknown; property?: { name?: string } };
  if (!/^toBeLessThan(OrEqual)?$/.test(property?.name ?? '') || !isNode(object)) return undefined;
  const [value] = (object.arguments ?? []) as unknown[];
  const [limit] = args ?? [];
  return isNode(value) && isNode(limit) ? { value, limit } : undefined;
}

/** The third argument of a wait for a condition: a limit that a busy machine may exceed. */
function waitLimitIn(node: Node): Node | undefined {
  const { callee, arguments: args } = node as { callee?: { name?: string }; arguments?: unknown[] };
  if (node.type !== 'CallExpression' || !/^(?:until|eventually)$/.test(callee?.name ?? '')) return undefined;
  return isNode(args?.[2]) ? args[2] : undefined;
}

/** Comparisons of elapsed time with a limit that a busy machine may exceed. */
export function elapsedTimeErrors(sources: Sources): string[] {
  return Object.entries(sources).flatMap(([file, text]) => {
    if (!/Ms\b|\.now\(|\b(?:until|eventually|toBeLessThan(?:OrEqual)?)\(/.test(text)) return [];
    const textOf = ({ start, end }: Node) => text.slice(start, end);
    return [...nodesOf(parseAst(text, { lang: 'ts' }) as unknown as Node)].flatMap((node) => {
      const wait = waitLimitIn(node);
      if (wait && !isHangLimit(wait, textOf(wait))) return [`${file}: ${textOf(node)} waits for too short a time`];
      const found = upperLimitIn(node);
      if (!found || !isElapsed(textOf(found.value)) || isHangLimit(found.limit, textOf(found.limit))) return [];
      return [`${file}: ${textOf(found.value)} is compared with ${textOf(found.limit)}; write timeLimitMs()`];
    });
  });
}

const readsClock = (text: string): boolean => /\b(?:performance|Date)\.now\(\)|\bhrtime\b|\buptime\(\)/.test(text);

/** A host without a FakeClock uses the system clock, so its deadlines may pass while the machine is busy. */
const hasRealDeadlines = (text: string): boolean =>
  /\bcreateHost\(/.test(text) && /\b(?:deadlineMs|timeouts)\b/.test(text) && !/\bclock\b/i.test(text);

/** The lane `real-clock` repeats these files, because their outcome may depend on the load of the machine. */
export const realClockFiles = (sources: Sources): string[] =>
  Object.entries(sources).flatMap(([file, text]) => (readsClock(text) || hasRealDeadlines(text) ? [file] : []));

/** Unit tests use a FakeClock and must not read the real clock. */
export const realClockErrors = (sources: Sources): string[] =>
  Object.entries(sources).flatMap(([file, text]) => (readsClock(text) ? [`${file} reads the real clock`] : []));
