/** AC-X1 at full length: three minutes for each engine. */
process.env.SECONDS ??= '180';
await import('../reliability/broker-chaos.test.js');
