/** B2 at its long count: two hundred kills of a broker in use. */
process.env.BROKER_KILLS ??= '200';
await import('../broker/embedded/kills.test.js');
