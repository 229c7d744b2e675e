/** S9 at full count: a thousand parked servers. */
process.env.PARKED ??= '1000';
await import('../reliability/parked-cost.test.js');
