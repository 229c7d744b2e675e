/** S2 at a count that a 99th percentile needs: five hundred kills. */
process.env.KILLS ??= '500';
await import('../reliability/revival.test.js');
