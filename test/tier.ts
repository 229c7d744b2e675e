/**
 * The same tests in two tiers. `npm test` runs them with small counts, beside other programs, so a limit on real time only
 * notices a hang. The lanes of `npm run test:long` run on a quiet machine with full counts and strict limits
 * (vitest.long.config.ts sets TEST_TIER).
 */
export const isLongTier = process.env.TEST_TIER === 'long';

/** How many rounds, cases or calls to run. */
export const countFor = (short: number, long: number): number => (isLongTier ? long : short);

/** The strict limit in a lane; elsewhere ten times as much, and at least ten seconds. */
export const timeLimitMs = (strictMs: number): number => (isLongTier ? strictMs : Math.max(10_000, 10 * strictMs));
