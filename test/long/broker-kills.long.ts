/** B2 and B14 on one host at full length: two hundred kills. */
process.env.HOST_KILLS ??= '200';
await import('../broker/e2e/kills.test.js');
