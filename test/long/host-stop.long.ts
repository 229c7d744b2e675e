/** S7 at full count: fifty servers, stopped within 5.5 s. */
process.env.SERVERS ??= '50';
await import('../reliability/host-stop.test.js');
