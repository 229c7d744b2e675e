/** S1 at full count: three thousand kills. */
process.env.KILLS ??= '3000';
await import('../reliability/kills.test.js');
