/** W6 at full count: fifty restarts, with the bar of 2 s. */
process.env.KILLS ??= '50';
process.env.HTTP_RESTARTS = 'long';
await import('../reliability/http-restarts.test.js');
