/** S8 at full count of look-alikes: two hundred hosts killed, a thousand processes that look like their servers. */
process.env.DEATHS ??= '200';
process.env.LOOK_ALIKES ??= '1000';
await import('../reliability/host-deaths.test.js');
