/** K9 at a larger count: five thousand calls. */
process.env.DEADLINE_CALLS ??= '5000';
await import('../reliability/broker-deadlines.test.js');
