/** X9 and X10 at full count: a million questions to the cache, a million requests to the allowlist. */
process.env.POLICY_CASES ??= '1000000';
process.env.SEED ??= String(Math.floor(Math.random() * 1e9));
console.log(`X9, X10 seed ${process.env.SEED}`);
await import('../../src/policy/cache.test.js');
await import('../../src/policy/allowlist.test.js');
